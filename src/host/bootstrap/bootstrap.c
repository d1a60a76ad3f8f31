/* bootstrap.c - choice of the bootstrap, and the part of the blob that tells who and where this PE is. */
#include "host/bootstrap/bootstrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BOOTSTRAP_AUTO, BOOTSTRAP_PMIX, BOOTSTRAP_SINGLETON }; /* choices of TERN_BOOTSTRAP in env.h */

uint64_t tern_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

tern_status_t tern_random_bytes(void *buf, size_t bytes)
{
    if (getrandom(buf, bytes, 0) != (ssize_t)bytes)
        return tern_error(TERN_ERR_SYSTEM, "getrandom: %s; the kernel must provide random numbers", strerror(errno));
    return TERN_OK;
}

static uint64_t file_hash(const char *name)
{
    char text[128];
    uint64_t hash = 14695981039346656037u;
    FILE *file = fopen(name, "re");
    if (!file)
        return 0;
    size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return hash;
}

static uint64_t inode_of(const char *name)
{
    struct stat st;
    return stat(name, &st) ? 0 : (uint64_t)st.st_ino;
}

void tern_place_own(struct tern_place *place)
{
    place->boot = file_hash("/proc/sys/kernel/random/boot_id");
    place->netns = inode_of("/proc/self/ns/net");
    place->pidns = inode_of("/proc/self/ns/pid");
}

bool tern_blob_same_node(const struct tern_blob *a, const struct tern_blob *b, const char **why)
{
    const char *text = "same node";
    bool same = false;
    if (a->pe == b->pe)
        same = true;
    else if (a->boot != b->boot)
        text = "on another node";
    else if (!a->boot)
        text = "the node is not known (no /proc/sys/kernel/random/boot_id)";
    else if (a->netns != b->netns)
        text = "in another network namespace of this host";
    else
        same = true;
    if (why)
        *why = text;
    return same;
}

tern_status_t tern_blob_fill(struct tern_rt *rt)
{
    struct tern_blob *blob = &rt->blob;
    struct tern_place place;
    memset(blob, 0, sizeof *blob);
    tern_place_own(&place);
    blob->magic = TERN_BLOB_MAGIC;
    blob->bytes = sizeof *blob;
    blob->version = (uint32_t)tern_version();
    blob->abi = TERN_ABI_VERSION;
    blob->config = tern_env_hash(&rt->env);
    blob->boot = place.boot;
    blob->netns = place.netns;
    blob->pidns = place.pidns;
    blob->pe = rt->pe;
    blob->pid = getpid();
    blob->uid = (uint32_t)geteuid();
    gethostname(blob->host, sizeof blob->host - 1);
    return tern_random_bytes(blob->cookie, sizeof blob->cookie);
}

/* A launcher's own count of the processes it started, where it is more than one. */
static const char *launcher_count(long *count)
{
    static const char *const names[] = {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        *count = text ? strtol(text, NULL, 10) : 0;
        if (*count > 1)
            return names[i];
    }
    return NULL;
}

static tern_status_t no_server(struct tern_rt *rt)
{
    long count;
    const char *name = launcher_count(&count);
    if (name)
        return tern_error(
            TERN_ERR_LAUNCHER,
            "the launcher started %ld processes (%s=%ld), but no PMIx server answers%s, so each would be a job "
            "of one PE; use srun --mpi=pmix, mpirun of an Open MPI with PMIx, or prterun; or tern_init_attr with a "
            "unique id; or TERN_BOOTSTRAP=singleton if one PE per process is meant",
            count, name, count, getenv("PMIX_NAMESPACE") ? "" : " (PMIX_NAMESPACE is not set)");
    if (rt->env.bootstrap == BOOTSTRAP_PMIX)
        return tern_error(TERN_ERR_BOOTSTRAP,
                          "TERN_BOOTSTRAP=pmix, but no PMIx server answers%s; start the program by srun "
                          "--mpi=pmix, mpirun or prterun",
                          getenv("PMIX_NAMESPACE") ? "" : " (PMIX_NAMESPACE is not set)");
    rt->bootstrap = &tern_bootstrap_singleton;
    return TERN_OK;
}

#ifdef TERN_HAVE_PMIX
static tern_status_t choose_pmix(struct tern_rt *rt)
{
    tern_status_t status = tern_pmix_join();
    if (status == TERN_ERR_UNREACHABLE)
        return no_server(rt);
    rt->bootstrap = &tern_bootstrap_pmix;
    return status;
}
#else
static tern_status_t choose_pmix(struct tern_rt *rt)
{
    if (getenv("PMIX_NAMESPACE") || rt->env.bootstrap == BOOTSTRAP_PMIX)
        return tern_error(TERN_ERR_LAUNCHER,
                          "this library was built without PMIx; build it with libpmix-dev present, or "
                          "start it by tern_init_attr with a unique id, or set TERN_BOOTSTRAP=singleton");
    return no_server(rt);
}
#endif

tern_status_t tern_bootstrap_open(struct tern_rt *rt, const tern_init_attr_t *attr)
{
    tern_status_t status = TERN_OK;
    if (attr && attr->id)
        rt->bootstrap = &tern_bootstrap_uid;
    else if (rt->env.bootstrap == BOOTSTRAP_SINGLETON)
        rt->bootstrap = &tern_bootstrap_singleton;
    else
        status = choose_pmix(rt);
    if (status == TERN_OK)
        status = rt->bootstrap->open(rt, attr);
    if (status != TERN_OK)
        rt->bootstrap = NULL;
    return status;
}
