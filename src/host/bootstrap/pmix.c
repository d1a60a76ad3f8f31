/*
 * pmix.c - the bootstrap under a PMIx launcher: one commit and one collecting fence. Keys carry the number of the
 * exchange, so that a new tern_init never reads an old blob. The connection to the server lives as long as the process
 * (another library, MPI say, may share it) and ends in atexit.
 */
#include "host/bootstrap/bootstrap.h"

#include <errno.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    bool joined, unreachable, exit_registered;
    pid_t pid; /* a forked child must not use its parent's connection */
    pmix_proc_t proc;
    unsigned exchanges; /* how many this process has begun */
} pmix;

static void pmix_at_exit(void)
{
    if (pmix.joined && pmix.pid == getpid()) {
        pmix.joined = false;
        PMIx_Finalize(NULL, 0);
    }
}

tern_status_t tern_pmix_join(void)
{
    if (pmix.joined && pmix.pid == getpid())
        return TERN_OK;
    if (pmix.joined)
        return tern_error(TERN_ERR_BOOTSTRAP,
                          "this process was forked by PE process %d, whose place among the PEs it cannot "
                          "take; start it by the launcher, or use tern_init_attr with a unique id",
                          (int)pmix.pid);
    if (pmix.unreachable || !getenv("PMIX_NAMESPACE"))
        return TERN_ERR_UNREACHABLE; /* no launcher: spares a singleton the threads and files of PMIx */
    pmix_status_t rc = PMIx_Init(&pmix.proc, NULL, 0);
    if (rc == PMIX_ERR_UNREACH) {
        pmix.unreachable = true; /* half initialised (4.2): it bears neither PMIx_Finalize nor a second PMIx_Init */
        return TERN_ERR_UNREACHABLE;
    }
    if (rc != PMIX_SUCCESS)
        return tern_error(TERN_ERR_BOOTSTRAP, "PMIx_Init: %s; start the program by srun --mpi=pmix, mpirun or prterun",
                          PMIx_Error_string(rc));
    pmix.joined = true;
    pmix.pid = getpid();
    if (!pmix.exit_registered)
        pmix.exit_registered = !atexit(pmix_at_exit);
    return TERN_OK;
}

/* Value of a job-level key. */
static pmix_status_t job_value(const char *key, pmix_value_t **value)
{
    pmix_proc_t job;
    PMIX_LOAD_PROCID(&job, pmix.proc.nspace, PMIX_RANK_WILDCARD);
    return PMIx_Get(&job, key, NULL, 0, value);
}

static tern_status_t pmix_open(struct tern_rt *rt, const tern_init_attr_t *attr)
{
    pmix_value_t *value = NULL;
    uint32_t size = 0;
    (void)attr;

    pmix_status_t rc = job_value(PMIX_JOB_SIZE, &value);
    if (rc == PMIX_SUCCESS) {
        PMIX_VALUE_GET_NUMBER(rc, value, size, uint32_t);
        PMIX_VALUE_RELEASE(value);
    }
    if (rc != PMIX_SUCCESS || size < 1 || size > 32767 || pmix.proc.rank >= size)
        return tern_error(TERN_ERR_BOOTSTRAP,
                          "the PMIx server gives no usable job size (%s, size %u, rank %u); at most 32767 "
                          "PEs are supported",
                          PMIx_Error_string(rc), size, (unsigned)pmix.proc.rank);
    rt->pe = (int)pmix.proc.rank;
    rt->n_pes = (int)size;
    return TERN_OK;
}

/* A fence that has been started: it may outlive the call that gave up waiting for it. */
struct fence {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    int owners;
    bool done;
    pmix_status_t result;
};

static void fence_drop(struct fence *fence) /* takes over the lock */
{
    bool last = !--fence->owners;
    pthread_mutex_unlock(&fence->lock);
    if (last) {
        pthread_cond_destroy(&fence->cond);
        pthread_mutex_destroy(&fence->lock);
        free(fence);
    }
}

static void fence_done(pmix_status_t result, void *data)
{
    struct fence *fence = data;
    pthread_mutex_lock(&fence->lock);
    fence->done = true;
    fence->result = result;
    pthread_cond_signal(&fence->cond);
    fence_drop(fence);
}

static struct fence *fence_new(void)
{
    struct fence *fence = calloc(1, sizeof *fence);
    pthread_condattr_t attr;
    if (!fence)
        return NULL;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&fence->cond, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&fence->lock, NULL);
    fence->owners = 2;
    return fence;
}

static tern_status_t fence_run(struct tern_rt *rt)
{
    struct fence *fence = fence_new();
    struct timespec deadline;
    pmix_info_t info;
    bool collect = true, done;
    pmix_status_t rc;
    int wait = 0;

    if (!fence)
        return tern_error(TERN_ERR_NO_MEMORY, "no memory to start the PMIx fence; free some");
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += rt->env.timeout_ms / 1000 + 1;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    rc = PMIx_Fence_nb(NULL, 0, &info, 1, fence_done, fence);
    pthread_mutex_lock(&fence->lock);
    if (rc != PMIX_SUCCESS) { /* no callback will come */
        fence->owners--;
        fence->done = true;
        fence->result = rc == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : rc;
    }
    while (!fence->done && !wait)
        wait = pthread_cond_timedwait(&fence->cond, &fence->lock, &deadline);
    done = fence->done;
    rc = fence->result;
    fence_drop(fence);
    if (!done)
        return tern_error(TERN_ERR_TIMEOUT,
                          "tern_init: not all of the %d PEs have come within %lld ms; see that every one of "
                          "them calls tern_init, or raise TERN_TIMEOUT_MS",
                          rt->n_pes, (long long)rt->env.timeout_ms);
    if (rc != PMIX_SUCCESS)
        return tern_error(TERN_ERR_BOOTSTRAP, "the PMIx fence of tern_init failed: %s; a PE may have ended",
                          PMIx_Error_string(rc));
    return TERN_OK;
}

static void blob_key(char *key, size_t bytes)
{
    snprintf(key, bytes, "tern.blob.%u", pmix.exchanges);
}

static tern_status_t pmix_exchange(struct tern_rt *rt, const struct tern_blob *own)
{
    char key[64];
    pmix_value_t value;
    pmix_status_t rc;

    pmix.exchanges++;
    blob_key(key, sizeof key);
    memset(&value, 0, sizeof value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = (char *)(uintptr_t)own;
    value.data.bo.size = sizeof *own;
    rc = PMIx_Put(PMIX_GLOBAL, key, &value);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Commit();
    if (rc != PMIX_SUCCESS)
        return tern_error(TERN_ERR_BOOTSTRAP, "cannot publish by PMIx: %s; the launcher may have ended",
                          PMIx_Error_string(rc));
    return fence_run(rt);
}

static tern_status_t pmix_get(struct tern_rt *rt, int pe, struct tern_blob *out)
{
    char key[64];
    pmix_proc_t proc;
    pmix_value_t *value = NULL;
    pmix_info_t info[2];
    bool immediate = true;
    int seconds = (int)(rt->env.timeout_ms / 1000) + 1;
    pmix_status_t rc;

    blob_key(key, sizeof key);
    PMIX_LOAD_PROCID(&proc, pmix.proc.nspace, (pmix_rank_t)pe);
    /* all is there since the fence: do not wait for what has not been published */
    PMIX_INFO_LOAD(&info[0], PMIX_IMMEDIATE, &immediate, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    rc = PMIx_Get(&proc, key, info, 2, &value);
    if (rc != PMIX_SUCCESS)
        return tern_error(TERN_ERR_BOOTSTRAP,
                          "PE %d has published nothing for start number %u (%s); all PEs must call tern_init "
                          "equally often",
                          pe, pmix.exchanges, PMIx_Error_string(rc));
    memset(out, 0, sizeof *out);
    if (value->type == PMIX_BYTE_OBJECT && value->data.bo.size > 0)
        memcpy(out, value->data.bo.bytes, value->data.bo.size < sizeof *out ? value->data.bo.size : sizeof *out);
    PMIX_VALUE_RELEASE(value);
    return TERN_OK;
}

static int compare_int(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* "0,1,5" to numbers; with no such list, or a strange one, every PE may be local: the blobs decide. */
static int peers_parse(const char *text, int n_pes, int *pes)
{
    int count = 0;
    while (text && *text && count < n_pes) {
        char *end;
        long pe = strtol(text, &end, 10);
        if (end == text || pe < 0 || pe >= n_pes)
            return 0;
        pes[count++] = (int)pe;
        text = *end == ',' ? end + 1 : end;
    }
    qsort(pes, (size_t)count, sizeof *pes, compare_int);
    return count;
}

static tern_status_t pmix_local(struct tern_rt *rt, int **pes, int *count)
{
    pmix_value_t *value = NULL;
    *pes = calloc((size_t)rt->n_pes, sizeof **pes);
    if (!*pes)
        return tern_error(TERN_ERR_NO_MEMORY, "no memory for the list of PEs; free some");
    *count = 0;
    if (job_value(PMIX_LOCAL_PEERS, &value) == PMIX_SUCCESS) {
        if (value->type == PMIX_STRING)
            *count = peers_parse(value->data.string, rt->n_pes, *pes);
        PMIX_VALUE_RELEASE(value);
    }
    if (!*count) {
        *count = rt->n_pes;
        for (int pe = 0; pe < rt->n_pes; pe++)
            (*pes)[pe] = pe;
    }
    return TERN_OK;
}

static void pmix_close(struct tern_rt *rt)
{
    (void)rt;
}

const struct tern_bootstrap tern_bootstrap_pmix = {
    .name = "pmix",
    .open = pmix_open,
    .exchange = pmix_exchange,
    .get = pmix_get,
    .local = pmix_local,
    .close = pmix_close,
};
