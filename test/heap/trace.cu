/*
 * trace.cu - random sequences of malloc, calloc, align and free on all PEs: equal offsets, alignment, zeroes, and
 * contents that each PE writes and every other PE reads where tern_ptr says. The heap grows underneath. Prints memory
 * at rest.
 */
#include "heap_test.h"

#define STEPS 300
#define LIVE 48
#define BLOCK_MAX ((uint64_t)3 << 20)

struct allocation {
    char *ptr;
    uint64_t bytes, stamp;
};

static char *buffer; /* of BLOCK_MAX bytes */
static char *base;   /* first allocation: offsets are told from it */

static void fill(char *out, const struct allocation *a, int pe)
{
    uint64_t seed = a->stamp + (uint64_t)pe * 977 + 1;

    for (uint64_t i = 0; i < a->bytes; i += 8) {
        uint64_t word = test_random(&seed);

        memcpy(out + i, &word, a->bytes - i < 8 ? a->bytes - i : 8);
    }
}

static void verify(const struct allocation *a)
{
    static char expected[BLOCK_MAX];

    for (int pe = 0; pe < tern_n_pes(); pe++) {
        void *at = tern_ptr(a->ptr, pe), *end = tern_ptr(a->ptr + a->bytes - 1, pe);

        REQUIRE(at && (char *)end == (char *)at + a->bytes - 1, "tern_ptr of PE %d: %p, %p", pe, at, end);
        CHECK((pe == tern_my_pe()) == (at == a->ptr), "PE %d's address is %p, the own one %p", pe, at, (void *)a->ptr);
        REQUIRE(cudaMemcpy(buffer, at, a->bytes, cudaMemcpyDeviceToHost) == cudaSuccess, "copy from PE %d", pe);
        fill(expected, a, pe);
        CHECK(!memcmp(buffer, expected, a->bytes), "block of %llu bytes on PE %d is damaged",
              (unsigned long long)a->bytes, pe);
    }
}

static void check_zero(const struct allocation *a)
{
    for (int pe = 0; pe < tern_n_pes(); pe++) {
        uint64_t nonzero = 0;

        REQUIRE(cudaMemcpy(buffer, tern_ptr(a->ptr, pe), a->bytes, cudaMemcpyDeviceToHost) == cudaSuccess, "copy");
        for (uint64_t i = 0; i < a->bytes; i++)
            nonzero += buffer[i] != 0;
        CHECK(!nonzero, "calloc of %llu bytes: %llu are not zero on PE %d", (unsigned long long)a->bytes,
              (unsigned long long)nonzero, pe);
    }
    REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
}

static void allocate(struct allocation *a, uint64_t *seed)
{
    int kind = (int)(test_random(seed) % 4);
    size_t alignment = (size_t)1 << test_random(seed) % 24;

    a->bytes = 1 + test_random(seed) % ((uint64_t)1 << (3 + test_random(seed) % 19));
    a->stamp = test_random(seed);
    if (kind == 0) {
        a->ptr = (char *)tern_align(alignment, a->bytes);
    } else if (kind == 1) {
        uint64_t count = 1 + test_random(seed) % 7;

        a->bytes = (a->bytes + count - 1) / count * count;
        a->ptr = (char *)tern_calloc(count, a->bytes / count);
    } else {
        a->ptr = (char *)tern_malloc(a->bytes);
    }
    REQUIRE(a->ptr, "%s", tern_last_error());
    CHECK((uintptr_t)a->ptr % (kind == 0 && alignment > 256 ? alignment : 256) == 0, "%p is not aligned",
          (void *)a->ptr);
    if (kind == 1)
        check_zero(a);
    fill(buffer, a, tern_my_pe());
    heap_test_write(a->ptr, buffer, a->bytes);
}

static void print_rest(void)
{
    tern_info_t info = heap_test_info();
    char line[256];
    FILE *f = fopen("/proc/self/status", "r");

    if (tern_my_pe() == 0)
        printf("at rest on %d PEs: heap %llu bytes, device memory of the runtime %llu bytes\n", info.n_pes,
               (unsigned long long)info.heap_bytes, (unsigned long long)info.runtime_bytes);
    while (f && fgets(line, sizeof(line), f))
        if (tern_my_pe() == 0 && (!strncmp(line, "VmRSS", 5) || !strncmp(line, "RssShmem", 8)))
            fputs(line, stdout);
    if (f)
        fclose(f);
    CHECK(info.heap_bytes == 0 && info.heap_used == 0, "the heap has memory before anybody asked");
}

static void run(uint64_t seed)
{
    struct allocation live[LIVE];
    uint64_t sum = 0, backed = 0;
    int n = 0;

    for (int i = 0; i < STEPS && !test_failures; i++) {
        if (n == LIVE || (n && test_random(&seed) % 5 < 2)) {
            int k = (int)(test_random(&seed) % (uint64_t)n);

            REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
            verify(&live[k]);
            REQUIRE(tern_free(live[k].ptr) == TERN_OK, "%s", tern_last_error());
            live[k] = live[--n];
        } else {
            allocate(&live[n], &seed);
            sum = sum * 31 + (uint64_t)(live[n++].ptr - base);
        }
        CHECK(heap_test_info().heap_bytes >= backed, "the heap shrank");
        backed = heap_test_info().heap_bytes;
    }
    CHECK(heap_test_same(sum), "PE %d: offsets are not equal on all PEs", tern_my_pe());
    for (int k = 0; k < n; k++) {
        verify(&live[k]);
        REQUIRE(tern_free(live[k].ptr) == TERN_OK, "%s", tern_last_error());
    }
    if (tern_my_pe() == 0)
        printf("grew to %llu bytes\n", (unsigned long long)backed);
}

int main(void)
{
    tern_info_t info;
    uint64_t seed;
    char *p;

    buffer = (char *)malloc(BLOCK_MAX);
    REQUIRE(buffer, "host memory");
    heap_test_init();
    print_rest();
    seed = heap_test_seed();
    base = (char *)tern_malloc(1);
    REQUIRE(base, "%s", tern_last_error());
    run(seed);

    p = (char *)tern_align((size_t)256 << 20, 1);
    CHECK(p && (uintptr_t)p % ((size_t)256 << 20) == 0, "alignment of 256 MiB: %p, %s", (void *)p, tern_last_error());
    CHECK(tern_free(p) == TERN_OK, "%s", tern_last_error());
    CHECK(tern_free(base) == TERN_OK, "%s", tern_last_error());
    info = heap_test_info();
    CHECK(info.heap_used == 0, "%llu bytes are in use at the end", (unsigned long long)info.heap_used);
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    free(buffer);
    return test_end("trace");
}
