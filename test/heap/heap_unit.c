/*
 * heap_unit.c - the heap with PEs as threads and a device whose operations fail at random on one PE: every PE must
 * return the same, nothing may be lost or leak, and the next right call must work.
 */
#include <dirent.h>
#include <unistd.h>

#include "fake.h"
#include "host/heap.h"

#include "common/check.h"

#define STEPS 400
#define LIVE 64

/* A PE that stopped alone would leave the others waiting: the first failure ends the program. */
#define PE_CHECK(cond, ...)                                                                                            \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: PE %d: %s: ", __FILE__, __LINE__, rt->pe, #cond);                                  \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Every PE has the same value. */
static bool same(struct tern_rt *rt, uint64_t value)
{
    static const enum tern_reduce ops[] = {TERN_REDUCE_MIN, TERN_REDUCE_MAX};
    uint64_t words[2] = {value, value};

    tern_control_allreduce(rt, NULL, words, 2, ops);
    return words[0] == words[1];
}

/* ---- random traces with faults ----------------------------------------------------------------------------------- */

struct allocation {
    uint64_t offset, bytes, stamp;
};

static uint64_t stamp_of(const struct allocation *a, int pe, uint64_t word)
{
    return a->stamp * 0x9e3779b97f4a7c15u + (uint64_t)pe * 1000003u + word;
}

/* First, last and some words: a chunk that is mapped at a wrong place shows. */
static void stamp(struct tern_rt *rt, const struct allocation *a)
{
    uint64_t words = a->bytes / 8, step = words / 16 + 1;
    uint64_t *at = (uint64_t *)(void *)(rt->span + rt->user_offset + a->offset);

    for (uint64_t w = 0; w < words; w += step)
        at[w] = stamp_of(a, rt->pe, w);
}

static void verify(struct tern_rt *rt, const struct allocation *a)
{
    uint64_t words = a->bytes / 8, step = words / 16 + 1;

    for (int pe = 0; pe < rt->n_pes; pe++) {
        const uint64_t *at =
            (const uint64_t *)(void *)(rt->window + rt->peers[pe].slot * rt->stride + rt->user_offset + a->offset);

        if (!rt->peers[pe].mapped)
            continue;
        for (uint64_t w = 0; w < words; w += step)
            PE_CHECK(at[w] == stamp_of(a, pe, w), "reads %llx of PE %d at %llu + %llu", (unsigned long long)at[w], pe,
                     (unsigned long long)a->offset, (unsigned long long)w * 8);
    }
}

/* What the proxy knows are the heaps as they are backed: the own one, and those of far PEs. */
static void verify_keys(struct tern_rt *rt)
{
    for (int pe = 0; rt->proxy && pe < rt->n_pes; pe++) {
        if (rt->peers[pe].near && pe != rt->pe)
            continue;
        PE_CHECK(fake_keyed(rt, pe, true) == rt->user_backed, "%llu bytes of PE %d's heap have keys, %llu are backed",
                 (unsigned long long)fake_keyed(rt, pe, true), pe, (unsigned long long)rt->user_backed);
    }
}

struct trace {
    uint64_t seed;
    int faults; /* armed operations that have failed */
};

/* One malloc or calloc, with a fault armed on one PE in one of three. */
static void trace_alloc(struct tern_rt *rt, uint64_t *seed, struct allocation *live, int *n, struct trace *t)
{
    static const enum fake_op ops[] = {FAKE_CREATE, FAKE_EXPORT,   FAKE_IMPORT, FAKE_MAP,
                                       FAKE_ZERO,   FAKE_REGISTER, FAKE_KEY};
    uint64_t bytes = 1 + test_random(seed) % ((uint64_t)1 << (4 + test_random(seed) % 20)), dice = test_random(seed);
    uint64_t alignment = (uint64_t)256 << test_random(seed) % 12;
    enum fake_op op = ops[test_random(seed) % (rt->proxy ? 7 : 5)];
    int victim = (int)(test_random(seed) % (uint64_t)rt->n_pes), after = (int)(test_random(seed) % 3);
    bool zero = test_random(seed) % 4 == 0, failed;
    struct tern_alloc_stats before, now;
    uint64_t backed = rt->user_backed, any;
    static const enum tern_reduce max = TERN_REDUCE_MAX;
    char *p;

    if (dice % 3 == 0 && rt->pe == victim)
        fake_fail(op, after, TERN_ERR_DEVICE);
    tern_alloc_get_stats(rt->heap->alloc, &before);
    p = tern_heap_alloc(rt, alignment, bytes, zero, "tern_test");
    failed = fake_heal();
    any = failed && rt->pe == victim;
    tern_control_allreduce(rt, NULL, &any, 1, &max);
    tern_alloc_get_stats(rt->heap->alloc, &now);
    PE_CHECK(same(rt, p ? (uint64_t)(p - rt->span) : 1), "offsets differ");
    PE_CHECK(same(rt, rt->user_backed), "backed bytes differ");
    PE_CHECK(rt->user_backed == now.bytes, "allocator and memory have different sizes");
    verify_keys(rt);
    if (any) {
        if (rt->pe == victim)
            t->faults++;
        PE_CHECK(!p && before.used == now.used && before.live == now.live,
                 "a failed call left something: %p, used %llu -> %llu, live %llu -> %llu", (void *)p,
                 (unsigned long long)before.used, (unsigned long long)now.used, (unsigned long long)before.live,
                 (unsigned long long)now.live);
        PE_CHECK(op == FAKE_ZERO || rt->user_backed == backed, "a failed growth left something");
        PE_CHECK(strstr(tern_last_error(), "fault of operation"), "'%s'", tern_last_error());
        return;
    }
    if (!p) {
        PE_CHECK(strstr(tern_last_error(), "do not fit"), "'%s'", tern_last_error());
        return;
    }
    PE_CHECK((uint64_t)(uintptr_t)p % alignment == 0, "%p is not aligned to %llu", (void *)p,
             (unsigned long long)alignment);
    for (uint64_t i = 0; zero && i < bytes; i++)
        if (p[i]) {
            PE_CHECK(false, "calloc left a byte");
            break;
        }
    live[*n] = (struct allocation){(uint64_t)(p - rt->span) - rt->user_offset, bytes, test_random(seed)};
    stamp(rt, &live[(*n)++]);
    PE_CHECK(same(rt, 0), "barrier");
}

static void trace_body(struct tern_rt *rt, void *arg)
{
    struct trace *t = arg;
    struct allocation live[LIVE];
    uint64_t seed = t->seed;
    int n = 0;

    PE_CHECK(tern_heap_open(rt) == TERN_OK, "%s", tern_last_error());
    for (int i = 0; i < STEPS; i++) {
        if (n == LIVE || (n && test_random(&seed) % 5 < 2)) {
            int k = (int)(test_random(&seed) % (uint64_t)n);

            verify(rt, &live[k]);
            PE_CHECK(tern_heap_free(rt, rt->span + rt->user_offset + live[k].offset) == TERN_OK, "%s",
                     tern_last_error());
            live[k] = live[--n];
        } else {
            trace_alloc(rt, &seed, live, &n, t);
        }
    }
    PE_CHECK(same(rt, 0), "barrier");
    for (int k = 0; k < n; k++)
        verify(rt, &live[k]);
    PE_CHECK(same(rt, 0), "barrier");
    tern_heap_close(rt);
}

static void random_traces(uint64_t seed)
{
    static const int nodes[] = {1, 2, 0, 3, 1};
    struct trace t = {seed, 0};

    for (int i = 0; i < 20; i++) {
        fake_nodes = nodes[i / 4];
        fake_run(i % 4 + 1, trace_body, &t);
        CHECK(fake_alive() == 0, "%d PEs: %d things are left", i % 4 + 1, fake_alive());
        t.seed = test_random(&t.seed);
    }
    fake_nodes = 1;
    printf("faults: %d\n", t.faults);
    CHECK(t.faults > 0, "no fault happened");
}

/* ---- the internal segment and groups ----------------------------------------------------------------------------- */

/* What of each other's internal segment the members must see: a word at the end of each page of 64 KiB. */
static void group_check(struct tern_rt *rt, const struct tern_group *group, uint64_t bytes, uint64_t round)
{
    char in = 0, out[FAKE_MAX_PES];

    for (uint64_t at = 0; at < bytes; at += 65536)
        *(uint64_t *)(void *)(rt->span + at) = round * 1000 + (uint64_t)rt->pe;
    tern_control_allgather(rt, group, &in, 1, out);
    for (int i = 0; i < group->count; i++) {
        const struct tern_peer *peer = &rt->peers[group->pes[i]];

        PE_CHECK(peer->near || fake_keyed(rt, group->pes[i], false) >= bytes,
                 "PE %d's segment: keys of %llu bytes only", group->pes[i],
                 (unsigned long long)fake_keyed(rt, group->pes[i], false));
        for (uint64_t at = 0; peer->mapped && at < bytes; at += 65536)
            PE_CHECK(*(uint64_t *)(void *)(rt->window + peer->slot * rt->stride + at) ==
                         round * 1000 + (uint64_t)group->pes[i],
                     "PE %d's segment at %llu", group->pes[i], (unsigned long long)at);
    }
    tern_control_allgather(rt, group, &in, 1, out);
}

static void group_body(struct tern_rt *rt, void *arg)
{
    static const int a[] = {0, 1}, b[] = {0, 2}, c[] = {1, 2, 3}, d[] = {0, 1, 2, 3};
    static const struct {
        struct tern_group group;
        uint64_t bytes;
        int fails; /* PE whose import fails; -1: none */
    } steps[] = {
        {{a, 2, 1, NULL}, (uint64_t)3 << 20, -1},  {{b, 2, 2, NULL}, (uint64_t)3 << 20, 2},
        {{b, 2, 2, NULL}, (uint64_t)3 << 20, -1},  {{c, 3, 3, NULL}, (uint64_t)9 << 20, 3},
        {{c, 3, 3, NULL}, (uint64_t)9 << 20, -1},  {{d, 4, 4, NULL}, (uint64_t)9 << 20, 0},
        {{d, 4, 4, NULL}, (uint64_t)9 << 20, -1},  {{d, 4, 4, NULL}, (uint64_t)300 << 20, -2},
        {{a, 2, 1, NULL}, (uint64_t)20 << 20, -1},
    };

    uint64_t backed[FAKE_MAX_PES], keys[FAKE_MAX_PES];

    PE_CHECK(tern_heap_open(rt) == TERN_OK, "%s", tern_last_error());
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        const struct tern_group *group = &steps[i].group;
        bool member = false;
        tern_status_t status;

        for (int m = 0; m < group->count; m++)
            member |= group->pes[m] == rt->pe;
        if (!member)
            continue;
        if (steps[i].fails == rt->pe)
            fake_fail(*(enum fake_op *)arg, 0, TERN_ERR_DEVICE);
        for (int pe = 0; pe < rt->n_pes; pe++)
            keys[pe] = fake_keyed(rt, pe, false), backed[pe] = rt->internal_backed;
        status = tern_heap_internal(rt, group, steps[i].bytes);
        PE_CHECK(fake_heal() == (steps[i].fails == rt->pe), "the fault of step %zu", i);
        if (steps[i].fails == -2)
            PE_CHECK(status == TERN_ERR_NO_MEMORY, "step %zu: beyond the end: %d", i, (int)status);
        else if (steps[i].fails >= 0)
            PE_CHECK(status == TERN_ERR_DEVICE, "step %zu: %d", i, (int)status);
        else
            PE_CHECK(status == TERN_OK && rt->internal_backed >= steps[i].bytes, "step %zu: %s", i, tern_last_error());
        if (status == TERN_OK)
            group_check(rt, group, steps[i].bytes, i);
        for (int pe = 0; status != TERN_OK && pe < rt->n_pes; pe++)
            PE_CHECK(keys[pe] == fake_keyed(rt, pe, false) && backed[pe] == rt->internal_backed,
                     "step %zu failed and left something of PE %d", i, pe);
    }
    PE_CHECK(same(rt, 0), "barrier");
    tern_heap_close(rt);
}

/* ---- mismatches, wrong arguments, limits ------------------------------------------------------------------------- */

static void text_is_same(struct tern_rt *rt, const char *part)
{
    char own[300], all[FAKE_MAX_PES][300];

    memset(own, 0, sizeof(own));
    snprintf(own, sizeof(own), "%s", tern_last_error());
    tern_control_allgather(rt, NULL, own, sizeof(own), all);
    PE_CHECK(!memcmp(own, all[0], sizeof(own)), "'%s', PE 0 '%s'", own, all[0]);
    PE_CHECK(strstr(own, part), "'%s' lacks '%s'", own, part);
}

static void mismatch_body(struct tern_rt *rt, void *arg)
{
    char *p, *q;

    (void)arg;
    PE_CHECK(tern_heap_open(rt) == TERN_OK, "%s", tern_last_error());
    PE_CHECK(!tern_heap_alloc(rt, 256, rt->pe == 2 ? 200 : 100, false, "tern_malloc"), "different sizes");
    text_is_same(
        rt,
        "collective call 1: PE 2 called tern_malloc of 200 bytes, PE 0 and 2 others called tern_malloc of 100 bytes");
    PE_CHECK(!tern_heap_alloc(rt, rt->pe == 0 ? 512 : 256, 100, false, "tern_align"), "different alignments");
    text_is_same(rt, "collective call 2: PE 0 called tern_align of 100 bytes at 512, PE 1 and 2 others");
    p = tern_heap_alloc(rt, 256, 100, false, "tern_malloc");
    PE_CHECK(p && p == rt->span + rt->user_offset, "a mismatch has changed the heap");

    /* PE 3 frees, the others go on */
    if (rt->pe == 3)
        PE_CHECK(tern_heap_free(rt, p) == TERN_ERR_MISMATCH, "free meets malloc");
    else
        PE_CHECK(!tern_heap_alloc(rt, 256, 64, false, "tern_malloc"), "malloc meets free");
    text_is_same(rt, "collective call 4: PE 3 called tern_free of offset 0 (256 bytes)");
    q = tern_heap_alloc(rt, 256, 64, false, "tern_malloc");
    PE_CHECK(q == p + 256, "the block was freed on some PE");
    PE_CHECK(tern_heap_free(rt, rt->pe == 1 ? q : p) == TERN_ERR_MISMATCH, "different blocks");
    PE_CHECK(tern_heap_free(rt, rt->pe == 1 ? NULL : p) == TERN_ERR_MISMATCH, "NULL on one PE");
    PE_CHECK(tern_heap_free(rt, rt->pe == 1 ? &q : (void *)p) == TERN_ERR_MISMATCH, "a foreign address on one PE");
    text_is_same(rt, "PE 1 called tern_free of an address outside the heap");

    /* wrong on all alike */
    PE_CHECK(tern_heap_free(rt, &q) == TERN_ERR_INVALID && tern_heap_free(rt, p + 8) == TERN_ERR_INVALID,
             "wrong addresses");
    PE_CHECK(tern_heap_free(rt, NULL) == TERN_OK, "NULL");
    PE_CHECK(!tern_heap_alloc(rt, 300, 8, false, "tern_align") && strstr(tern_last_error(), "power of two"),
             "alignment 300");
    PE_CHECK(!tern_heap_alloc(rt, (size_t)1 << 40, 8, false, "tern_align"), "alignment 2^40");
    PE_CHECK(!tern_heap_alloc(rt, 256, SIZE_MAX, true, "tern_calloc") && strstr(tern_last_error(), "do not fit"),
             "all memory");
    PE_CHECK(!tern_heap_alloc(rt, 256, 0, false, "tern_malloc"), "nothing");
    PE_CHECK(tern_heap_free(rt, p) == TERN_OK && tern_heap_free(rt, p) == TERN_ERR_INVALID, "twice");
    PE_CHECK(tern_heap_free(rt, q) == TERN_OK, "%s", tern_last_error());

    /* to the last byte, and again */
    for (int i = 0; i < 2; i++) {
        p = tern_heap_alloc(rt, 256, rt->user_max, false, "tern_malloc");
        PE_CHECK(p == rt->span + rt->user_offset, "the whole heap: %s", tern_last_error());
        PE_CHECK(!tern_heap_alloc(rt, 256, 1, false, "tern_malloc"), "one byte more");
        PE_CHECK(tern_heap_free(rt, p) == TERN_OK, "%s", tern_last_error());
    }
    PE_CHECK(same(rt, 0), "barrier");
    tern_heap_close(rt);
}

/* The chunks suffice from the least growth to a large limit; kernels hear of each. */
static void growth_body(struct tern_rt *rt, void *arg)
{
    uint64_t limit = *(uint64_t *)arg, bytes = 0, block = 2 << 20;
    int published;

    PE_CHECK(tern_heap_open(rt) == TERN_OK, "%s", tern_last_error());
    published = fake_published();
    for (; tern_heap_alloc(rt, 256, block, false, "tern_malloc"); bytes += block)
        block = bytes < (uint64_t)1 << 30 ? 2 << 20 : 64 << 20;
    PE_CHECK(rt->user_backed == limit && bytes == limit, "%llu of %llu bytes: %s", (unsigned long long)bytes,
             (unsigned long long)rt->user_backed, tern_last_error());
    PE_CHECK(fake_published() > published, "kernels do not know the heap's size");
    PE_CHECK(same(rt, 0), "barrier");
    tern_heap_close(rt);
}

/* The last PE has no large chunks: what is needed now is backed, and no more. */
static void scarce_body(struct tern_rt *rt, void *arg)
{
    (void)arg;
    PE_CHECK(tern_heap_open(rt) == TERN_OK, "%s", tern_last_error());
    for (int i = 0; i < 10; i++)
        PE_CHECK(tern_heap_alloc(rt, 256, (size_t)4 << 20, false, "tern_malloc"), "%s", tern_last_error());
    PE_CHECK(rt->user_backed < (uint64_t)44 << 20, "%llu bytes", (unsigned long long)rt->user_backed);
    PE_CHECK(!tern_heap_alloc(rt, 256, (size_t)6 << 20, false, "tern_malloc") &&
                 strstr(tern_last_error(), "PE 2: ") == (rt->pe == 2 ? NULL : tern_last_error()),
             "%s", tern_last_error());
    PE_CHECK(tern_heap_alloc(rt, 256, (size_t)4 << 20, false, "tern_malloc"), "%s", tern_last_error());
    PE_CHECK(same(rt, 0), "barrier");
    tern_heap_close(rt);
}

static void reserve_body(struct tern_rt *rt, void *arg)
{
    (void)arg;
    PE_CHECK(tern_heap_open(rt) == TERN_OK, "%s", tern_last_error());
    PE_CHECK(same(rt, rt->stride) && rt->stride * (uint64_t)rt->n_pes <= fake_reserve_limit, "stride %llu",
             (unsigned long long)rt->stride);
    PE_CHECK(rt->user_max >= (uint64_t)1 << 30, "limit %llu", (unsigned long long)rt->user_max);
    PE_CHECK(same(rt, 0), "barrier");
    tern_heap_close(rt);
}

static void no_space_body(struct tern_rt *rt, void *arg)
{
    (void)arg;
    PE_CHECK(tern_heap_open(rt) == TERN_ERR_NO_MEMORY && !rt->heap, "opened without address space");
}

/* Each step of the opening fails on the last PE. */
static void open_body(struct tern_rt *rt, void *arg)
{
    enum fake_op op = *(enum fake_op *)arg;
    tern_status_t status;

    if (rt->pe == rt->n_pes - 1)
        fake_fail(op, 0, TERN_ERR_SYSTEM);
    rt->env.heap_size = (uint64_t)1 << 20;
    status = tern_heap_open(rt);
    PE_CHECK(fake_heal() == (rt->pe == rt->n_pes - 1), "the fault");
    if (op == FAKE_RESERVE) { /* a smaller window will do */
        PE_CHECK(status == TERN_OK && rt->user_backed >= rt->env.heap_size, "%s", tern_last_error());
        tern_heap_close(rt);
    } else {
        PE_CHECK(status == TERN_ERR_SYSTEM && !rt->heap, "status %d", (int)status);
    }
}

/* Descriptors of this process. */
static int open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    REQUIRE(dir, "/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

int main(void)
{
    static struct {
        int nodes;
        enum fake_op op; /* that fails in a group's growth */
    } groups[] = {{1, FAKE_IMPORT}, {4, FAKE_KEY}, {0, FAKE_KEY}, {0, FAKE_IMPORT}};
    uint64_t seed = test_seed(), limit;
    int fds = open_fds();

    random_traces(seed);
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        fake_nodes = groups[i].nodes;
        fake_run(4, group_body, &groups[i].op);
    }
    fake_nodes = 1;
    fake_run(4, mismatch_body, NULL);
    for (enum fake_op op = FAKE_RESERVE; op <= FAKE_ZERO; op++) {
        fake_heap_limit = (uint64_t)256 << 20;
        fake_run(3, open_body, &op);
    }
    fake_nodes = 2;
    for (enum fake_op op = FAKE_REGISTER; op <= FAKE_KEY; op++)
        fake_run(3, open_body, &op);
    fake_nodes = 1;
    fake_chunk_limit = (uint64_t)4 << 20;
    fake_run(3, scarce_body, NULL);
    fake_chunk_limit = 0;
    limit = fake_heap_limit = (uint64_t)288 << 30; /* as much as GPUs have; nobody touches it */
    fake_granularity = 2 << 20;
    fake_run(2, growth_body, &limit);
    fake_nodes = 2;
    fake_run(2, growth_body, &limit);
    fake_nodes = 1;
    fake_heap_limit = (uint64_t)64 << 30;
    fake_reserve_limit = (uint64_t)16 << 30;
    fake_run(3, reserve_body, NULL);
    fake_reserve_limit = (uint64_t)600 << 20;
    fake_run(3, no_space_body, NULL);
    CHECK(fake_alive() == 0, "%d things are left", fake_alive());
    CHECK(open_fds() == fds, "%d descriptors, %d at the start", open_fds(), fds);
    return test_end("heap_unit");
}
