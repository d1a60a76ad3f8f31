/*
 * local.cu - local calls around the proxy, in jobs with one and without: tern_buffer_register against a model and with
 * wrong arguments, tern_dump and the signal of TERN_DUMP_SIGNAL, variables that cannot be.
 */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <tern/device.h>

#include "common/check.h"

#define ARENA ((size_t)1 << 20)
#define MOST 256 /* buffers */

static char *arena; /* device memory */
static char log_file[128];

static void start(void)
{
    tern_status_t status = tern_init();

    if (status == TERN_ERR_NO_DEVICE) {
        printf("skipped: no GPU: %s\n", tern_last_error());
        exit(TEST_SKIP);
    }
    REQUIRE(status == TERN_OK, "tern_init: %s", tern_last_error());
    REQUIRE(cudaMalloc((void **)&arena, ARENA) == cudaSuccess, "%zu bytes of device memory", ARENA);
}

static void stop(void)
{
    REQUIRE(cudaFree(arena) == cudaSuccess, "cudaFree");
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
}

static void refused(void *ptr, size_t bytes, tern_status_t expected, const char *part)
{
    tern_status_t status = tern_buffer_register(ptr, bytes);

    CHECK(status == expected && strstr(tern_last_error(), part), "%zu bytes at %p: %s: '%s' (expected '%s')", bytes,
          ptr, tern_status_name(status), tern_last_error(), part);
}

static void taken(void *ptr, size_t bytes)
{
    CHECK(tern_buffer_register(ptr, bytes) == TERN_OK, "%zu bytes at %p: %s", bytes, ptr, tern_last_error());
}

static void given(void *ptr)
{
    CHECK(tern_buffer_unregister(ptr) == TERN_OK, "%p: %s", ptr, tern_last_error());
}

static void unknown(void *ptr)
{
    CHECK(tern_buffer_unregister(ptr) == TERN_ERR_INVALID && strstr(tern_last_error(), "no registered buffer"),
          "%p: '%s'", ptr, tern_last_error());
}

static void check_arguments(void)
{
    char *symmetric = (char *)tern_malloc(4096);

    REQUIRE(symmetric, "%s", tern_last_error());
    refused(NULL, 8, TERN_ERR_INVALID, "nothing");
    refused(NULL, 0, TERN_ERR_INVALID, "nothing");
    refused(arena, 0, TERN_ERR_INVALID, "nothing");
    refused(arena, SIZE_MAX, TERN_ERR_INVALID, "address space");
    refused(symmetric, 16, TERN_ERR_INVALID, "symmetric");
    refused(symmetric + 4095, 1, TERN_ERR_INVALID, "symmetric");
    unknown(NULL);
    unknown(arena);

    taken(arena + 4096, 4096);
    refused(arena + 4096, 4096, TERN_ERR_INVALID, "overlaps");
    refused(arena + 4096, 1, TERN_ERR_INVALID, "overlaps");
    refused(arena + 8191, 1, TERN_ERR_INVALID, "overlaps");
    refused(arena + 8191, 4096, TERN_ERR_INVALID, "overlaps");
    refused(arena, 4097, TERN_ERR_INVALID, "overlaps");
    refused(arena, ARENA, TERN_ERR_INVALID, "overlaps");
    taken(arena, 4096); /* neighbours do not overlap */
    taken(arena + 8192, 1);
    unknown(arena + 1);
    unknown(arena + 8191);
    given(arena + 4096);
    unknown(arena + 4096);
    taken(arena + 4096, 8);
    given(arena + 4096);
    given(arena);
    given(arena + 8192);
    CHECK(tern_free(symmetric) == TERN_OK, "%s", tern_last_error());

    for (size_t i = 0; i < MOST; i++)
        taken(arena + i * 64, 64);
    refused(arena + MOST * 64, 64, TERN_ERR_NO_MEMORY, "larger");
    given(arena + 64);
    taken(arena + MOST * 64, 64);
    for (size_t i = 0; i <= MOST; i++)
        if (i != 1)
            given(arena + i * 64);
}

/* Random intervals of the arena against a list. */
static void check_random(uint64_t *seed)
{
    static struct {
        size_t at, bytes;
    } model[MOST];
    int n = 0, registered = 0;

    for (int i = 0; i < 2000; i++) {
        size_t at = test_random(seed) % ARENA,
               bytes = 1 + test_random(seed) % (test_random(seed) % 8 ? 6000 : ARENA / 8);
        bool free = n < MOST;

        if (n && test_random(seed) % 3 == 0) {
            int k = (int)(test_random(seed) % (uint64_t)n);

            given(arena + model[k].at);
            model[k] = model[--n];
            continue;
        }
        bytes = bytes < ARENA - at ? bytes : ARENA - at;
        for (int k = 0; k < n; k++)
            free = free && (at + bytes <= model[k].at || model[k].at + model[k].bytes <= at);
        CHECK((tern_buffer_register(arena + at, bytes) == TERN_OK) == free, "%zu bytes at %zu: %s", bytes, at,
              free ? tern_last_error() : "they overlap");
        if (free)
            model[n].at = at, model[n++].bytes = bytes, registered++;
    }
    CHECK(registered > 100, "%d registrations only", registered);
    while (n > 0)
        given(arena + model[--n].at);
}

static void *registrar(void *arg)
{
    char *base = (char *)arg;

    for (int i = 0; i < 300; i++) {
        taken(base, 1000);
        refused(base + 999, 1, TERN_ERR_INVALID, "overlaps");
        given(base);
    }
    return NULL;
}

static void check_threads(void)
{
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, registrar, arena + i * 1000) == 0, "thread");
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* ---- dumps ------------------------------------------------------------------------------------------------------- */

static int log_count(const char *part)
{
    FILE *f = fopen(log_file, "r");
    char line[2000];
    int n = 0;

    REQUIRE(f, "%s", log_file);
    while (fgets(line, sizeof(line), f))
        n += strstr(line, part) != NULL;
    fclose(f);
    return n;
}

static bool log_has(const char *part)
{
    for (int ms = 0; ms < 20000; ms++) {
        if (log_count(part))
            return true;
        usleep(1000);
    }
    return false;
}

static void own_handler(int number)
{
    (void)number;
}

static void check_dumps(void)
{
    struct sigaction now;

    CHECK(tern_dump() == TERN_OK && log_has("dump (tern_dump)"), "tern_dump: %s", tern_last_error());
    CHECK(log_count("TERN_DUMP_SIGNAL has come") == 0, "nobody sent a signal");
    for (int i = 0; i < 1000; i++)
        raise(SIGUSR2);
    CHECK(log_has("TERN_DUMP_SIGNAL has come"), "no dump for a signal");
    CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler != own_handler, "the handler");
}

static void init_fails(const char *name, const char *value, tern_status_t expected, const char *part)
{
    tern_status_t status;

    setenv(name, value, 1);
    status = tern_init();
    CHECK(status == expected && strstr(tern_last_error(), part), "%s=%s: %s: %s", name, value, tern_status_name(status),
          tern_last_error());
    unsetenv(name);
}

int main(void)
{
    uint64_t seed = test_seed();
    struct sigaction own, now;

    snprintf(log_file, sizeof(log_file), "/tmp/tern-test-local-%d", (int)getpid());
    setenv("TERN_LOG_FILE", log_file, 1);
    setenv("TERN_LOG", "warn", 1);
    CHECK(tern_dump() == TERN_ERR_STATE && tern_buffer_register(&seed, 8) == TERN_ERR_STATE &&
              tern_buffer_unregister(&seed) == TERN_ERR_STATE,
          "calls without a runtime");

    memset(&own, 0, sizeof(own));
    own.sa_handler = own_handler;
    for (int proxied = 0; proxied < 2; proxied++) {
        CHECK(sigaction(SIGUSR2, &own, NULL) == 0, "sigaction");
        setenv("TERN_DUMP_SIGNAL", "12", 1); /* SIGUSR2 */
        setenv("TERN_ATOMICS", proxied ? "proxy" : "auto", 1);
        setenv("TERN_TRANSPORT", proxied ? "loopback" : "auto", 1);
        start();
        check_arguments();
        check_random(&seed);
        check_threads();
        check_dumps();
        taken(arena, 100); /* finalize takes it back */
        stop();
        CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == own_handler, "the program's handler is back");
        unlink(log_file);
    }
    unsetenv("TERN_DUMP_SIGNAL");

    start();
    tern_status_t aborted = tern_abort("test"); /* or another PE was first */
    CHECK((aborted == TERN_OK || aborted == TERN_ERR_ABORTED) && tern_buffer_register(arena, 8) == TERN_ERR_ABORTED &&
              tern_dump() == TERN_OK,
          "in an aborted job: %s", tern_last_error());
    stop();

    init_fails("TERN_DUMP_SIGNAL", "11", TERN_ERR_CONFIG, "crash");
    init_fails("TERN_DUMP_SIGNAL", "9", TERN_ERR_CONFIG, "TERN_DUMP_SIGNAL=9");
    init_fails("TERN_CHANNELS", "24", TERN_ERR_CONFIG,
               "TERN_CHANNELS=24 is not allowed; allowed: a power of two from 1 to 256");
    init_fails("TERN_TRANSPORT", "rdma", TERN_ERR_CONFIG, "null|loopback|ucx|verbs");
    init_fails("TERN_PROXY_THREADS", "0", TERN_ERR_CONFIG, "an integer from 1 to 64");
    unlink(log_file);
    return test_end("local");
}
