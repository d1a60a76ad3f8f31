/*
 * litmus.cu - plays the litmus tests of tests.h with random delays and says which failed, and in which iteration first.
 * Parties: the PEs of the job; in a job of one PE its blocks (for ThreadSanitizer, which sees one process). Several
 * groups of parties, with memory of their own, play at the same time; only where all PEs meet there is one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/check.h"
#include "litmus/tests.h"

struct lit_test {
    const char *name, *sentence;
    int where;
};
static const struct lit_test lit_tests[] = {
#define LIT_ROW_OF(name, where, sentence) {#name, sentence, where},
    LIT_TABLE(LIT_ROW_OF)
#undef LIT_ROW_OF
};
#define LIT_GROUPS 3 /* of the second pass */
#define LIT_COUNT (int)(sizeof lit_tests / sizeof *lit_tests)

enum {
#define LIT_ENUM(name, where, sentence) LIT_##name,
    LIT_TABLE(LIT_ENUM)
#undef LIT_ENUM
};

/* `blocks`: parties that are blocks, or 0. `team`: blocks of the grid that make a group. */
__global__ void __launch_bounds__(LIT_THREADS_MAX)
    lit_kernel(tern_ctx_t ctx, struct lit_region *regions, struct lit_result *results, int test, int blocks, int team,
               uint32_t iterations, uint32_t seed)
{
    int group = (int)blockIdx.x / team, member = (int)blockIdx.x % team;
    struct lit p = {ctx,
                    regions + group * (blocks ? blocks : 1),
                    blocks ? member : tern_my_pe(ctx),
                    blocks ? blocks : tern_n_pes(ctx),
                    blocks,
                    !blocks && member == 1,
                    0,
                    seed ^ (uint32_t)group * 374761393u,
                    0,
                    TERN_OK};
    struct lit_result *result = results + blockIdx.x;
    for (uint32_t it = 1; it <= iterations && p.status == TERN_OK; it++) {
        p.it = it;
        p.bad = 0;
        lit_jitter(&p, 0);
        switch (test) {
#define LIT_CASE(name, where, sentence)                                                                                \
    case LIT_##name:                                                                                                   \
        lit_##name(&p);                                                                                                \
        break;
            LIT_TABLE(LIT_CASE)
#undef LIT_CASE
        }
        if (p.bad && atomicAdd(&result->bad, p.bad) == 0)
            result->first = it;
    }
    if (p.status != TERN_OK && threadIdx.x == 0) {
        result->status = (uint32_t)p.status;
        result->status_it = p.it;
    }
}

struct options {
    const char *test, *parties;
    int blocks, threads, groups, list, orders;
    uint32_t rounds, deadline_ms;
    uint64_t seed;
};

static int usage(FILE *out)
{
    fprintf(
        out,
        "usage: test-litmus-litmus [--test NAME] [--parties pes|blocks] [--blocks N] [--threads N] [--groups N]\n"
        "                          [--iterations N] [--seed N] [--deadline MS] [--list] [--orders]\n"
        "  --parties         default: PEs, in a job of one PE its blocks, of which --blocks (4) says the number\n"
        "  --threads         of a block (default 64, at most 128)\n"
        "  --groups          groups of parties at the same time, between which the iterations are dealt out; without\n"
        "                    it one group plays them all, then three a quarter of them\n"
        "  --deadline        a wait that takes longer fails the test (default 20000)\n"
        "  --list            names the tests and their sentences\n"
        "  --orders          names the ordering operations of the device API and their reasons\n");
    return 2;
}

static int parse(int argc, char **argv, struct options *o)
{
    *o = {NULL, "", 4, LIT_THREADS, 0, 0, 0, 300, 20000, 0};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--list"))
            o->list = 1;
        else if (!strcmp(argv[i], "--orders"))
            o->orders = 1;
        else if (!strcmp(argv[i], "--parties"))
            o->parties = value, i++;
        else if (!strcmp(argv[i], "--test"))
            o->test = value, i++;
        else if (!strcmp(argv[i], "--blocks"))
            o->blocks = atoi(value), i++;
        else if (!strcmp(argv[i], "--threads"))
            o->threads = atoi(value), i++;
        else if (!strcmp(argv[i], "--groups"))
            o->groups = atoi(value), i++;
        else if (!strcmp(argv[i], "--iterations"))
            o->rounds = (uint32_t)strtoul(value, NULL, 0), i++;
        else if (!strcmp(argv[i], "--deadline"))
            o->deadline_ms = (uint32_t)strtoul(value, NULL, 0), i++;
        else if (!strcmp(argv[i], "--seed"))
            o->seed = strtoull(value, NULL, 0), i++;
        else
            return usage(stderr);
    }
    if (o->threads < 1 || o->threads > LIT_THREADS_MAX || o->blocks < 1 || o->blocks > LIT_PARTIES_MAX ||
        o->groups < 0 || o->groups * (o->blocks > 2 ? o->blocks : 2) > LIT_BLOCKS_MAX ||
        (strcmp(o->parties, "") && strcmp(o->parties, "blocks") && strcmp(o->parties, "pes")))
        return usage(stderr);
    return 0;
}

static int list(const struct options *o)
{
    if (o->list)
        for (int i = 0; i < LIT_COUNT; i++)
            printf("%s\t%s\n", lit_tests[i].name, lit_tests[i].sentence);
    if (o->orders) {
#define LIT_ORDER(name, kind, why) printf("%s\t%s\t%s\n", #name, #kind, why);
        TERN_ORDER_TABLE(LIT_ORDER)
#undef LIT_ORDER
    }
    return 0;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Plays one test; CHECKs what came out. */
static void play(const struct options *o, tern_ctx_t ctx, struct lit_region *regions, struct lit_result *results,
                 int test, int groups, uint32_t rounds)
{
    const struct lit_test *t = &lit_tests[test];
    struct lit_result got[LIT_BLOCKS_MAX];
    int parties = o->blocks ? o->blocks : 1, team = t->where == LIT_GRID ? 2 : parties;
    if (t->where == LIT_PES) /* all PEs meet once at a time */
        groups = 1;
    uint32_t iterations = (rounds + (uint32_t)groups - 1) / (uint32_t)groups;

    cudaMemset(regions, 0, (size_t)(groups * parties) * sizeof *regions);
    cudaMemset(results, 0, sizeof got);
    cudaDeviceSynchronize();
    REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    double start = now_s();
    tern_status_t status = tern_launch(lit_kernel, groups * team, o->threads, 0, NULL, ctx, regions, results, test,
                                       o->blocks, team, iterations, (uint32_t)(o->seed ^ o->seed >> 32));
    REQUIRE(status == TERN_OK, "%s: %s", t->name, tern_last_error());
    cudaError_t error = cudaDeviceSynchronize();
    CHECK(error == cudaSuccess, "%s: %s", t->name, cudaGetErrorString(error));
    cudaMemcpy(got, results, sizeof got, cudaMemcpyDeviceToHost);
    for (int i = 0; i < groups * team; i++) {
        CHECK(got[i].bad == 0, "litmus %s, PE %d block %d: %u wrong words, first in iteration %u (%s)", t->name,
              tern_my_pe(), i, got[i].bad, got[i].first, t->sentence);
        CHECK(got[i].status == TERN_OK, "litmus %s, PE %d block %d: iteration %u: %s %s", t->name, tern_my_pe(), i,
              got[i].status_it, tern_status_name((tern_status_t)got[i].status), tern_abort_reason());
    }
    if (tern_my_pe() == 0)
        printf("litmus: %-18s %8u rounds, %2d groups, %7.2f s\n", t->name, iterations * (uint32_t)groups, groups,
               now_s() - start);
}

static void play_all(const struct options *o, tern_ctx_t ctx, struct lit_region *regions, struct lit_result *results,
                     int groups, uint32_t rounds)
{
    int known = 0;
    for (int i = 0; i < LIT_COUNT && !test_failures; i++) {
        if (o->test && strcmp(o->test, lit_tests[i].name))
            continue;
        known = 1;
        if (lit_tests[i].where == LIT_ANY || !o->blocks)
            play(o, ctx, regions, results, i, groups, rounds);
    }
    CHECK(known, "no test %s; --list names them", o->test);
}

int main(int argc, char **argv)
{
    struct options o;
    tern_ctx_t ctx;

    if (parse(argc, argv, &o))
        return 2;
    if (o.list || o.orders)
        return list(&o);
    if (!o.seed)
        o.seed = test_seed();
    char text[16];
    snprintf(text, sizeof text, "%u", o.deadline_ms);
    setenv("TERN_DEVICE_TIMEOUT_MS", text, 0);
    tern_status_t status = tern_init();
    if (status == TERN_ERR_NO_DEVICE)
        return printf("skipped: no GPU: %s\n", tern_last_error()), TEST_SKIP;
    REQUIRE(status == TERN_OK && tern_ctx(&ctx) == TERN_OK, "%s", tern_last_error());
    ctx = tern_ctx_timeout(ctx, o.deadline_ms);
    if (!strcmp(o.parties, "pes") || (!*o.parties && tern_n_pes() > 1))
        o.blocks = 0;
    REQUIRE(tern_n_pes() <= LIT_PARTIES_MAX, "at most %d PEs", LIT_PARTIES_MAX);
    int groups = o.groups ? o.groups : LIT_GROUPS;
    struct lit_region *regions =
        (struct lit_region *)tern_malloc((size_t)(groups * (o.blocks ? o.blocks : 1)) * sizeof *regions);
    struct lit_result *results;
    cudaMalloc(&results, LIT_BLOCKS_MAX * sizeof *results);
    REQUIRE(regions && results, "%s", tern_last_error());
    if (!o.groups) {
        play_all(&o, ctx, regions, results, 1, o.rounds);
        play_all(&o, ctx, regions, results, groups, o.rounds / 4 + 1);
    } else {
        play_all(&o, ctx, regions, results, groups, o.rounds);
    }
    cudaFree(results);
    if (!test_failures)
        CHECK(tern_free(regions) == TERN_OK && tern_finalize() == TERN_OK, "%s", tern_last_error());
    return test_end("litmus");
}
