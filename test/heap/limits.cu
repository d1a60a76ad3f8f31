/*
 * limits.cu - the heap's end and wrong arguments: exhaustion and what comes after it, frees of what is no allocation,
 * sizes and limits by TERN_HEAP_*, hidden peers, re-init without anything left.
 */
#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include "heap_test.h"

#define MIB ((size_t)1 << 20)

/* Descriptors of this process; those of memfds in *memfds. */
static int open_fds(int *memfds)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int n = 0;

    *memfds = 0;
    REQUIRE(dir, "/proc/self/fd");
    while ((entry = readdir(dir))) {
        char link[600], target[PATH_MAX] = "";

        snprintf(link, sizeof(link), "/proc/self/fd/%s", entry->d_name);
        if (readlink(link, target, sizeof(target) - 1) > 0)
            *memfds += strstr(target, "memfd:") != NULL;
        n++;
    }
    closedir(dir);
    return n;
}

static int memfd_mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[PATH_MAX + 200];
    int n = 0;

    REQUIRE(f, "/proc/self/maps");
    while (fgets(line, sizeof(line), f))
        n += strstr(line, "memfd:") != NULL;
    fclose(f);
    return n;
}

static void restart(const char *name, const char *value)
{
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    if (name)
        setenv(name, value, 1);
}

static void test_exhaustion(void)
{
    void *blocks[64];
    tern_info_t info = heap_test_info();
    int n = 0;

    CHECK(info.heap_max == 16 * MIB, "limit %llu", (unsigned long long)info.heap_max);
    CHECK(!tern_malloc(16 * MIB + 1) && strstr(tern_last_error(), "TERN_HEAP_MAX"), "'%s'", tern_last_error());
    for (int round = 0; round < 3; round++) {
        void *after;

        while (n < 64 && (blocks[n] = tern_malloc(MIB)))
            n++;
        CHECK(n == 16, "%d MiB in a heap of 16: %s", n, tern_last_error());
        CHECK(strstr(tern_last_error(), "limit") && strstr(tern_last_error(), "used"), "'%s'", tern_last_error());
        CHECK(!tern_calloc(1, 1) && !tern_align(4096, 1), "a full heap gave memory");
        CHECK(heap_test_info().heap_used == 16 * MIB, "use");
        CHECK(tern_free(blocks[7]) == TERN_OK && tern_free(blocks[8]) == TERN_OK, "%s", tern_last_error());
        CHECK((after = tern_malloc(2 * MIB)) == blocks[7], "a gap of two blocks: %s", tern_last_error());
        CHECK(tern_free(after) == TERN_OK, "%s", tern_last_error());
        while (n-- > 0)
            if (n != 7 && n != 8)
                CHECK(tern_free(blocks[n]) == TERN_OK, "%s", tern_last_error());
        n = 0;
        CHECK((after = tern_malloc(16 * MIB)), "the whole heap: %s", tern_last_error());
        CHECK(tern_free(after) == TERN_OK, "%s", tern_last_error());
    }
    CHECK(!tern_calloc(SIZE_MAX / 2, 3) && !tern_malloc(SIZE_MAX), "more than there can be");
}

static void test_arguments(void)
{
    char *p = (char *)tern_malloc(1000), *q = (char *)tern_malloc(1000);
    int local;

    REQUIRE(p && q, "%s", tern_last_error());
    CHECK(tern_free(&local) == TERN_ERR_INVALID && strstr(tern_last_error(), "tern_free"), "'%s'", tern_last_error());
    CHECK(tern_free(p + 256) == TERN_ERR_INVALID, "the inside of a block");
    CHECK(tern_free(p) == TERN_OK && tern_free(p) == TERN_ERR_INVALID, "twice");
    CHECK(tern_free(NULL) == TERN_OK, "NULL");
    CHECK(!tern_align(0, 8) && !tern_align(384, 8) && !tern_align((size_t)512 << 20, 8), "bad alignments");
    CHECK(!tern_malloc(0) && !tern_calloc(0, 8) && !tern_calloc(8, 0), "nothing");
    CHECK(!tern_ptr(&local, 0), "an address outside the heap");
    CHECK(!tern_ptr(q, -1) && !tern_ptr(q, tern_n_pes()) && strstr(tern_last_error(), "range"), "PE out of range");
    CHECK(tern_ptr(q, tern_my_pe()) == q, "the own address");
    CHECK(tern_free(q) == TERN_OK, "%s", tern_last_error());
}

/* TERN_HEAP_MAX may differ: the least counts. TERN_HEAP_SIZE is backed from the start, and within the limit. */
static void test_sizes(void)
{
    int me = tern_my_pe(), last = tern_n_pes() - 1;
    tern_status_t status;
    tern_info_t info;

    restart("TERN_HEAP_MAX", me == last ? "8M" : "32M");
    setenv("TERN_HEAP_SIZE", "6M", 1);
    heap_test_init();
    info = heap_test_info();
    CHECK(info.heap_max == 8 * MIB, "limit %llu", (unsigned long long)info.heap_max);
    CHECK(info.heap_bytes >= 6 * MIB && info.heap_bytes <= 8 * MIB, "backed %llu", (unsigned long long)info.heap_bytes);
    CHECK(heap_test_same(info.heap_bytes), "backed bytes differ");

    restart("TERN_HEAP_SIZE", "10M");
    status = tern_init();
    CHECK(status == TERN_ERR_CONFIG && strstr(tern_last_error(), "TERN_HEAP_SIZE"), "%s: %s", tern_status_name(status),
          tern_last_error());
    unsetenv("TERN_HEAP_SIZE");

    setenv("TERN_ATOMICS", "proxy", 1);
    heap_test_init();
    CHECK(heap_test_info().near_pes == last + 1, "atomics by the proxy hide nobody");
    CHECK(heap_test_same(heap_test_info().heap_max), "barriers and growth with a proxy");
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    unsetenv("TERN_ATOMICS");
    setenv("TERN_HEAP_MAX", "16M", 1);
    heap_test_init();
}

static void test_hidden(void)
{
    char *p;
    tern_info_t info;

    restart("TERN_DISABLE_P2P", "1");
    setenv("TERN_TRANSPORT", "loopback", 1);
    heap_test_init();
    info = heap_test_info();
    CHECK(info.near_pes == 1, "%d PEs are near", info.near_pes);
    p = (char *)tern_calloc(1, 5 * MIB);
    REQUIRE(p, "%s", tern_last_error());
    for (int pe = 0; pe < tern_n_pes(); pe++)
        CHECK(tern_ptr(p, pe) == (pe == tern_my_pe() ? p : NULL), "PE %d: %p", pe, tern_ptr(p, pe));
    CHECK(tern_free(p) == TERN_OK, "%s", tern_last_error());
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    unsetenv("TERN_DISABLE_P2P");
    unsetenv("TERN_TRANSPORT");
}

int main(void)
{
    int fds, memfds, first = 0;
    bool on_cpu = !strcmp(tern_device_name(), "cpu");

    setenv("TERN_HEAP_MAX", "16M", 1);
    heap_test_init();
    /* the driver of a GPU, and a launcher's library, keep descriptors of their own after the first start */
    restart(NULL, NULL);
    fds = open_fds(&first);
    heap_test_init();
    test_exhaustion();
    test_arguments();
    test_sizes();
    test_hidden();
    CHECK(open_fds(&memfds) == fds && memfds == first, "%d descriptors, %d at the start; %d memfds, %d",
          open_fds(&memfds), fds, memfds, first);
    CHECK(!on_cpu || (memfds == 0 && memfd_mappings() == 0), "%d memfds, %d mappings of memfds are left", memfds,
          memfd_mappings());
    return test_end("limits");
}
