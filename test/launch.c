/*
 * launch.c - lets test/run-pes.py start PEs where there is no PMIx launcher: tern_init() is replaced by one that meets by a
 * unique id handed over in a file. As libtern-test-launch.so it is preloaded into programs that use libtern.so; test
 * programs that have the library inside link it with -Wl,--wrap=tern_init. Without TEST_LAUNCH_FILE it does nothing.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/tern.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 30000

static int launch_write(const char *path, const tern_unique_id_t *id)
{
    char tmp[512];
    FILE *file;
    int ok;

    snprintf(tmp, sizeof tmp, "%s.new", path);
    file = fopen(tmp, "w");
    if (!file)
        return 0;
    ok = fwrite(id, sizeof *id, 1, file) == 1;
    return fclose(file) == 0 && ok && rename(tmp, path) == 0;
}

static int launch_read(const char *path, tern_unique_id_t *id)
{
    const struct timespec nap = {0, 1000000};
    int ms, ok;

    for (ms = 0; ms < WAIT_MS; ms++) {
        FILE *file = fopen(path, "r");
        if (file) {
            ok = fread(id, sizeof *id, 1, file) == 1;
            fclose(file);
            return ok;
        }
        nanosleep(&nap, NULL);
    }
    return 0;
}

/* Without an id (its configuration is wrong) PE 0 lets the others make one, so that they find out, too. */
static int launch_is_none(const tern_unique_id_t *id)
{
    static const tern_unique_id_t none;
    return memcmp(id, &none, sizeof none) == 0;
}

/* The n-th tern_init of the processes meets by the n-th file. */
static tern_status_t launch_init(tern_status_t (*real)(void))
{
    static int inits;
    const char *base = getenv("TEST_LAUNCH_FILE"), *pe = getenv("TEST_LAUNCH_PE"), *n_pes = getenv("TEST_LAUNCH_PES");
    tern_init_attr_t attr = {.size = sizeof attr, .gpu = -1};
    tern_unique_id_t id;
    tern_status_t status;
    char path[400];

    if (!base || !pe || !n_pes || tern_initialized())
        return real();
    attr.pe = atoi(pe);
    attr.n_pes = atoi(n_pes);
    attr.id = &id;
    snprintf(path, sizeof path, "%s.%d", base, inits++);
    if (attr.pe == 0) {
        status = tern_get_unique_id(&id);
        if (status != TERN_OK)
            memset(&id, 0, sizeof id);
        if (!launch_write(path, &id))
            return TERN_ERR_SYSTEM;
    } else if (!launch_read(path, &id)) {
        return TERN_ERR_TIMEOUT;
    } else {
        status = launch_is_none(&id) ? tern_get_unique_id(&id) : TERN_OK;
    }
    return status == TERN_OK ? tern_init_attr(&attr) : status;
}

#ifdef TEST_LAUNCH_WRAP
tern_status_t __real_tern_init(void);
tern_status_t __wrap_tern_init(void);

tern_status_t __wrap_tern_init(void)
{
    return launch_init(__real_tern_init);
}
#else
tern_status_t tern_init(void)
{
    tern_status_t (*real)(void);

    *(void **)&real = dlsym(RTLD_NEXT, "tern_init");
    return real ? launch_init(real) : TERN_ERR_SYSTEM;
}
#endif
