/*
 * mismatch.cu - one PE skips, resizes or reorders a collective call at a random place: every PE gets TERN_ERR_MISMATCH
 * with the same sentence, which names PE, call number and both calls; nothing is lost, and the next right call works.
 */
#include "heap_test.h"

#define ROUNDS 60

static uint64_t hash_text(const char *text)
{
    uint64_t h = 5381;

    while (*text)
        h = h * 33 + (unsigned char)*text++;
    return h;
}

/* What the odd PE does instead of tern_malloc(bytes). `live`: an allocation it may free. */
static tern_status_t odd_call(int kind, uint64_t bytes, void *live, char *name, size_t name_bytes)
{
    void *p = live;
    tern_status_t status = TERN_OK;

    switch (kind) {
    case 0: /* another size: it skipped the call before, or mistook it */
        snprintf(name, name_bytes, "tern_malloc of %llu bytes", (unsigned long long)bytes + 8);
        p = tern_malloc(bytes + 8);
        break;
    case 1:
        snprintf(name, name_bytes, "tern_calloc of %llu bytes", (unsigned long long)bytes);
        p = tern_calloc(1, bytes);
        break;
    case 2:
        snprintf(name, name_bytes, "tern_align of %llu bytes at 512", (unsigned long long)bytes);
        p = tern_align(512, bytes);
        break;
    case 3:
        snprintf(name, name_bytes, "tern_free of offset");
        status = tern_free(live);
        break;
    case 4:
        snprintf(name, name_bytes, "tern_free of NULL");
        status = tern_free(NULL);
        break;
    case 5:
        snprintf(name, name_bytes, "tern_malloc of 0 bytes");
        p = tern_malloc(0);
        break;
    case 6:
        snprintf(name, name_bytes, "tern_barrier_all");
        status = tern_barrier_all();
        break;
    default:
        snprintf(name, name_bytes, "tern_finalize");
        status = tern_finalize();
        break;
    }
    if (kind < 3 || kind == 5) {
        CHECK(!p, "%s returned %p", name, p);
        status = TERN_ERR_MISMATCH; /* its text is checked */
    }
    return status;
}

int main(void)
{
    uint64_t seed, bytes, calls;
    char *live, *next, name[64], usual[64], number[64], text[1024];

    heap_test_init();
    if (tern_n_pes() < 2) {
        printf("skipped: needs two PEs\n");
        return TEST_SKIP;
    }
    seed = heap_test_seed(); /* malloc, barrier, free */
    calls = 3;
    for (int round = 0; round < ROUNDS && !test_failures; round++) {
        int odd = (int)(test_random(&seed) % (uint64_t)tern_n_pes()), kind = (int)(test_random(&seed) % 8);

        bytes = 8 + test_random(&seed) % 100000;
        live = (char *)tern_malloc(bytes);
        REQUIRE(live, "%s", tern_last_error());
        calls++;
        snprintf(usual, sizeof(usual), "tern_malloc of %llu bytes", (unsigned long long)bytes);
        if (tern_my_pe() == odd) {
            tern_status_t status = odd_call(kind, bytes, live, name, sizeof(name));

            CHECK(status == TERN_ERR_MISMATCH, "%s: %s", name, tern_status_name(status));
            CHECK(strstr(tern_last_error(), name), "'%s' lacks '%s'", tern_last_error(), name);
        } else {
            CHECK(!tern_malloc(bytes), "tern_malloc beside kind %d", kind);
        }
        calls++;
        snprintf(text, sizeof(text), "%s", tern_last_error());
        snprintf(number, sizeof(number), "call %llu", (unsigned long long)calls);
        CHECK(strstr(text, usual), "'%s' lacks '%s'", text, usual);
        CHECK(strstr(text, number), "'%s' lacks '%s'", text, number);
        snprintf(name, sizeof(name), "PE %d", odd);
        CHECK(strstr(text, name), "'%s' lacks '%s'", text, name);
        if (round < 3 && tern_my_pe() == 0)
            printf("%s\n", text);

        next = (char *)tern_malloc(bytes);
        REQUIRE(next && next == live + (bytes + 255) / 256 * 256, "after kind %d: %p, not behind %p: %s", kind,
                (void *)next, (void *)live, tern_last_error());
        calls++;
        CHECK(heap_test_same(hash_text(text)), "PE %d has another sentence: %s", tern_my_pe(), text);
        calls += 3;
        REQUIRE(tern_free(live) == TERN_OK && tern_free(next) == TERN_OK, "%s", tern_last_error());
        calls += 2;
        CHECK(heap_test_info().heap_used == 0, "%llu bytes are lost", (unsigned long long)heap_test_info().heap_used);
    }
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    return test_end("mismatch");
}
