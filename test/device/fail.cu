/*
 * fail.cu - what goes wrong on the device: bad arguments under TERN_CHECK=1, each reported with a sentence on every PE and
 * without effect; stale contexts; job abort and late barriers ending all waits; reports by many threads at once. Each case
 * has a runtime of its own, so it also shows that tern_init works after an abort.
 *
 * With the argument "report" only the reports by many threads are played, with "abort" only the abort (scripts/mutants.sh).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/check.h"
#include "device/device_test.h"

#define BYTES 4096

/* Bad calls: X(name, call in the report, reason in the report). */
#define BAD_TABLE(X)                                                                                                   \
    X(put_pe, "tern_put", "is not one of the")                                                                         \
    X(put_pe_negative, "tern_put", "PE -1 is not one of the")                                                          \
    X(put_address, "tern_put", "not in the symmetric heap")                                                            \
    X(put_size, "tern_put", "not in the symmetric heap")                                                               \
    X(put_block_size, "tern_put", "not in the symmetric heap")                                                         \
    X(get_pe, "tern_get", "is not one of the")                                                                         \
    X(get_address, "tern_get", "not in the symmetric heap")                                                            \
    X(p_align, "tern_p", "not aligned to 8 bytes")                                                                     \
    X(p_pe, "tern_p", "is not one of the")                                                                             \
    X(g_align, "tern_g", "not aligned to 4 bytes")                                                                     \
    X(iput_size, "tern_iput", "not in the symmetric heap")                                                             \
    X(iget_before, "tern_iget", "not in the symmetric heap")                                                           \
    X(put_signal_align, "tern_put_signal", "not aligned to 8 bytes")                                                   \
    X(put_signal_op, "tern_put_signal", "operator 7 is unknown")                                                       \
    X(signal_op_pe, "tern_signal_op", "is not one of the")                                                             \
    X(signal_fetch_address, "tern_signal_fetch", "not in the symmetric heap")                                          \
    X(signal_wait_cmp, "tern_signal_wait_until", "operator 9 is unknown")                                              \
    X(wait_align, "tern_wait_until", "not aligned to 8 bytes")                                                         \
    X(wait_any_address, "tern_wait_until", "not in the symmetric heap")                                                \
    X(test_cmp, "tern_test", "operator -1 is unknown")                                                                 \
    X(atomic_align, "tern_atomic", "not aligned to 4 bytes")                                                           \
    X(quiet_pe, "tern_quiet", "is not one of the")                                                                     \
    X(stage_global, "tern_ctx_stage", "not shared memory")                                                             \
    X(stage_local, "tern_ctx_stage", "not shared memory")                                                              \
    X(stage_align, "tern_ctx_stage", "not aligned")                                                                    \
    X(stage_small, "tern_ctx_stage", "too small")                                                                      \
    X(stage_empty, "tern_ctx_stage", "too small")                                                                      \
    X(stale_put, "tern_put", "the context belongs to a runtime that has ended")                                        \
    X(stale_barrier, "tern_barrier_all", "the context belongs to a runtime that has ended")

enum {
#define BAD_ENUM(name, call, reason) BAD_##name,
    BAD_TABLE(BAD_ENUM)
#undef BAD_ENUM
    BAD_COUNT
};
static const struct bad {
    const char *name, *call, *reason;
} bads[] = {
#define BAD_ROW(name, call, reason) {#name, call, reason},
    BAD_TABLE(BAD_ROW)
#undef BAD_ROW
};

/* Returns what the call returned, where it returns something that says that it failed: 0 or a status. */
TERN_DEV int bad_wait(tern_ctx_t ctx, int bad, char *mem)
{
    uint64_t *words = (uint64_t *)mem;
    size_t index;
    switch (bad) {
    case BAD_signal_fetch_address:
        return tern_signal_fetch(ctx, (uint64_t *)(ctx.heap - 64)) == 0 ? TERN_ERR_INVALID : 0;
    case BAD_signal_wait_cmp:
        return tern_signal_wait_until_block(ctx, words, 9, 1);
    case BAD_wait_align:
        return tern_int64_wait_until(ctx, (int64_t *)(mem + 4), TERN_CMP_EQ, 1);
    case BAD_wait_any_address:
        return tern_uint32_wait_until_any(ctx, (uint32_t *)(ctx.heap + ctx.stride), 4, NULL, TERN_CMP_EQ, 1, &index);
    case BAD_test_cmp:
        return tern_int32_test(ctx, (int32_t *)mem, -1, 1) == 0 ? TERN_ERR_INVALID : 0;
    case BAD_quiet_pe:
        return tern_quiet_pe(ctx, tern_n_pes(ctx));
    case BAD_stale_barrier:
        return tern_barrier_all_block(ctx);
    default:
        return TERN_ERR_INVALID;
    }
}

TERN_DEV void bad_move(tern_ctx_t ctx, int bad, char *mem, char *local)
{
    int n = tern_n_pes(ctx), me = tern_my_pe(ctx);
    uint64_t *words = (uint64_t *)mem;
    switch (bad) {
    case BAD_put_pe:
        tern_put(ctx, mem, local, 64, n);
        break;
    case BAD_put_pe_negative:
        tern_put_nbi_warp(ctx, mem, local, 64, -1);
        break;
    case BAD_put_address:
        tern_put(ctx, local, mem, 64, me);
        break;
    case BAD_put_size:
        tern_put(ctx, mem, local, (size_t)1 << 46, me);
        break;
    case BAD_put_block_size:
        tern_put_block(ctx, mem, local, (size_t)1 << 46, me);
        break;
    case BAD_get_pe:
        tern_get(ctx, mem, mem + 512, 64, n + 100);
        break;
    case BAD_get_address:
        tern_get_block(ctx, mem, ctx.heap - 4096, 64, me);
        break;
    case BAD_p_align:
        tern_double_p(ctx, (double *)(mem + 4), 1.0, me);
        break;
    case BAD_p_pe:
        tern_int8_p(ctx, (int8_t *)mem, 1, n);
        break;
    case BAD_g_align:
        mem[512 + threadIdx.x] = tern_float_g(ctx, (float *)(mem + 2), me) != 0;
        break;
    case BAD_iput_size:
        tern_int32_iput(ctx, (int32_t *)mem, (int32_t *)local, 1 << 30, 1, 1000, me);
        break;
    case BAD_iget_before:
        tern_int16_iget_warp(ctx, (int16_t *)mem, (int16_t *)mem, 1, -(1 << 30), 100, me);
        break;
    case BAD_put_signal_align:
        tern_put_signal(ctx, mem, local, 64, (uint64_t *)(mem + 1028), 1, TERN_SIGNAL_SET, me);
        break;
    case BAD_put_signal_op:
        tern_put_signal_block(ctx, mem, local, 64, words + 128, 1, 7, me);
        break;
    case BAD_signal_op_pe:
        tern_signal_op(ctx, words, 1, TERN_SIGNAL_ADD, -5);
        break;
    case BAD_atomic_align:
        mem[512 + threadIdx.x] = tern_uint32_atomic_fetch_add(ctx, (uint32_t *)(mem + 1), 1, me) != 0;
        break;
    case BAD_stale_put:
        tern_put_block(ctx, mem, local, 64, me);
        break;
    }
}

__global__ void bad_kernel(tern_ctx_t ctx, int bad, char *mem, char *local, int *returned)
{
    __shared__ char shared[2048] __attribute__((aligned(128)));
    if (bad >= BAD_stage_global && bad <= BAD_stage_empty) {
        char own[128] __attribute__((aligned(128)));
        tern_ctx_t staged = bad == BAD_stage_global  ? tern_ctx_stage(ctx, local, 4096)
                            : bad == BAD_stage_local ? tern_ctx_stage(ctx, own, 4096)
                            : bad == BAD_stage_align ? tern_ctx_stage(ctx, shared + 64, 1920)
                                                     : tern_ctx_stage(ctx, shared, bad == BAD_stage_small ? 1000 : 0);
        if (threadIdx.x == 0)
            *returned = staged.stage ? TERN_OK : TERN_ERR_INVALID;
        return;
    }
    bad_move(ctx, bad, mem, local);
    int status = bad_wait(ctx, bad, mem);
    if (threadIdx.x == 0)
        *returned = status;
}

/* ---- the cases' frame ------------------------------------------------------------------------------------------------------ */

/* The abort comes to every PE, in time, with its sentence. */
static void expect_abort(const char *what, const char *call, const char *reason)
{
    struct timespec nap = {0, 2000000};
    for (int i = 0; i < 10000 && tern_status() == TERN_OK; i++)
        nanosleep(&nap, NULL);
    CHECK(tern_status() == TERN_ERR_ABORTED, "%s: status %s", what, tern_status_name(tern_status()));
    CHECK(strstr(tern_abort_reason(), call) && strstr(tern_abort_reason(), reason), "%s: reason: %s", what,
          tern_abort_reason());
    CHECK(tern_barrier_all() == TERN_ERR_ABORTED, "%s: host calls go on after the abort", what);
}

static void end(void)
{
    cudaDeviceSynchronize();
    REQUIRE(tern_finalize() == TERN_OK, "%s", tern_last_error());
}

/* The last PE makes the bad call; all see it reported, and nothing written. */
static void play_bad(int bad, tern_ctx_t stale)
{
    tern_ctx_t ctx;
    device_test_init(&ctx, 1);
    char *mem = (char *)tern_calloc(1, BYTES), *local, got[BYTES];
    int *returned, status = -1, guilty = tern_my_pe() == tern_n_pes() - 1;
    REQUIRE(mem && cudaMalloc(&local, BYTES) == cudaSuccess && cudaMalloc(&returned, sizeof *returned) == cudaSuccess, "%s",
            tern_last_error());
    cudaMemset(local, 0x5a, BYTES);
    cudaMemset(returned, 0, sizeof *returned);
    REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    if (guilty) {
        tern_ctx_t used = bad == BAD_stale_put || bad == BAD_stale_barrier ? stale : ctx;
        REQUIRE(tern_launch(bad_kernel, 1, 32, 0, NULL, used, bad, mem, local, returned) == TERN_OK, "%s", tern_last_error());
        device_test_wait(bads[bad].name);
    }
    expect_abort(bads[bad].name, bads[bad].call, bads[bad].reason);
    cudaMemcpy(&status, returned, sizeof status, cudaMemcpyDeviceToHost);
    CHECK(!guilty || status == TERN_ERR_INVALID, "%s: returned %d", bads[bad].name, status);
    cudaMemcpy(got, mem, BYTES, cudaMemcpyDeviceToHost);
    for (int i = 0; i < BYTES; i++)
        CHECK(got[i] == 0, "%s: byte %d was written", bads[bad].name, i);
    cudaFree(local);
    cudaFree(returned);
    end();
}

/* ---- reports by many threads at once ----------------------------------------------------------------------------------------- */

#define REPORT_THREADS 64

__global__ void report_kernel(tern_ctx_t ctx, char *mem)
{
    tern_int8_p(ctx, (int8_t *)mem, 1, 1000 + (int)(blockIdx.x * blockDim.x + threadIdx.x));
}

/* The one report that is taken must be of one thread: its PE number tells which. */
static void test_report(int rounds)
{
    for (int round = 0; round < rounds && !test_failures; round++) {
        tern_ctx_t ctx;
        int pe = -1;
        unsigned block = 0, thread = 0;
        device_test_init(&ctx, 1);
        char *mem = (char *)tern_calloc(1, 64);
        REQUIRE(mem && tern_barrier_all() == TERN_OK, "%s", tern_last_error());
        if (tern_my_pe() == 0)
            REQUIRE(tern_launch(report_kernel, 8, REPORT_THREADS, 0, NULL, ctx, mem) == TERN_OK, "%s", tern_last_error());
        expect_abort("report", "tern_p", "is not one of the");
        const char *at = strstr(tern_abort_reason(), "(block"), *colon = strstr(tern_abort_reason(), "): PE ");
        CHECK(at && colon && sscanf(at, "(block %u, thread %u)", &block, &thread) == 2 && sscanf(colon, "): PE %d", &pe) == 1,
              "report: reason: %s", tern_abort_reason());
        CHECK(pe == 1000 + (int)(block * REPORT_THREADS + thread), "report of several threads: %s", tern_abort_reason());
        end();
    }
}

/* A report counts for the next call of the host, however soon, and for the tern_finalize of a program that ends at once. */
static void test_report_soon(void)
{
    for (int call = 0; call < 4; call++) {
        tern_ctx_t ctx;
        device_test_init(&ctx, 1);
        char *mem = (char *)tern_calloc(1, 64);
        REQUIRE(mem && tern_barrier_all() == TERN_OK, "%s", tern_last_error());
        if (tern_my_pe() == 0) {
            REQUIRE(tern_launch(report_kernel, 1, 1, 0, NULL, ctx, mem) == TERN_OK, "%s", tern_last_error());
            device_test_wait("report soon");
            if (call == 0)
                CHECK(tern_status() == TERN_ERR_ABORTED, "status %s", tern_status_name(tern_status()));
            if (call == 1)
                CHECK(tern_quiet() == TERN_ERR_ABORTED, "tern_quiet goes on");
            if (call == 2)
                CHECK(strstr(tern_abort_reason(), "tern_p"), "reason: %s", tern_abort_reason());
        } else {
            expect_abort("report soon", "tern_p", "is not one of the");
        }
        end();
        CHECK(strstr(tern_abort_reason(), "tern_p in a kernel of PE 0"), "call %d: reason: %s", call, tern_abort_reason());
    }
}

/* ---- abort ends waits -------------------------------------------------------------------------------------------------------- */

enum { WAIT_SIGNAL, WAIT_WARP, WAIT_BLOCK, WAIT_ALL, WAIT_ANY, WAIT_SOME, WAIT_STATUS, WAIT_COUNT };

__global__ void waits_kernel(tern_ctx_t ctx, uint64_t *words, uint32_t *counts)
{
    tern_status_t status = TERN_OK;
    size_t index, found, indices[4];
    switch (blockIdx.x % WAIT_COUNT) {
    case WAIT_SIGNAL:
        status = tern_signal_wait_until(ctx, words, TERN_CMP_NE, 0);
        break;
    case WAIT_WARP:
        status = tern_signal_wait_until_warp(ctx, words, TERN_CMP_NE, 0);
        break;
    case WAIT_BLOCK:
        status = tern_signal_wait_until_block(ctx, words, TERN_CMP_NE, 0);
        break;
    case WAIT_ALL:
        status = tern_uint64_wait_until_all(ctx, words, 4, NULL, TERN_CMP_NE, 0);
        break;
    case WAIT_ANY:
        status = tern_int32_wait_until_any(ctx, (int32_t *)words, 4, NULL, TERN_CMP_NE, 0, &index);
        break;
    case WAIT_SOME:
        status = tern_int64_wait_until_some(ctx, (int64_t *)words, 4, indices, NULL, TERN_CMP_NE, 0, &found);
        break;
    default:
        while (status == TERN_OK) {
            status = tern_ctx_status(ctx);
            tern_prim_pause();
        }
    }
    atomicAdd(&counts[status], 1);
}

__global__ void barrier_kernel(tern_ctx_t ctx, uint32_t *counts)
{
    tern_status_t status = tern_barrier_all_block(ctx);
    atomicAdd(&counts[status], 1);
}

static void check_counts(const char *what, uint32_t *counts, uint32_t threads)
{
    uint32_t got[32];
    device_test_wait(what);
    cudaMemcpy(got, counts, sizeof got, cudaMemcpyDeviceToHost);
    CHECK(got[TERN_ERR_ABORTED] == threads, "%s: %u of %u threads ended with TERN_ERR_ABORTED, %u with TERN_ERR_TIMEOUT, %u well",
          what, got[TERN_ERR_ABORTED], threads, got[TERN_ERR_TIMEOUT], got[TERN_OK]);
}

static uint32_t *counts_new(void)
{
    uint32_t *counts;
    REQUIRE(cudaMalloc(&counts, 32 * sizeof *counts) == cudaSuccess, "no memory");
    cudaMemset(counts, 0, 32 * sizeof *counts);
    return counts;
}

/* PE 0 aborts the job while all PEs wait in all forms, and the other PEs in a barrier besides. */
static void test_abort(void)
{
    tern_ctx_t ctx;
    device_test_init(&ctx, 1);
    int threads = 48, late = tern_my_pe() > 0;
    uint64_t *words = (uint64_t *)tern_calloc(4, sizeof *words);
    uint32_t *counts = counts_new(), *barrier = counts_new();
    cudaStream_t side;
    REQUIRE(words && cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking) == cudaSuccess, "%s", tern_last_error());
    cudaDeviceSynchronize();
    REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    REQUIRE(tern_launch(waits_kernel, WAIT_COUNT, threads, 0, NULL, ctx, words, counts) == TERN_OK, "%s", tern_last_error());
    if (late)
        REQUIRE(tern_launch(barrier_kernel, 1, threads, 0, side, ctx, barrier) == TERN_OK, "%s", tern_last_error());
    usleep(50000);
    if (!late)
        CHECK(tern_abort("the test wants it") == TERN_OK, "%s", tern_last_error());
    expect_abort("abort", "the test wants it", "");
    check_counts("waits", counts, (uint32_t)(WAIT_COUNT * threads));
    check_counts("barrier", barrier, late ? (uint32_t)threads : 0);
    cudaStreamDestroy(side);
    cudaFree(counts);
    cudaFree(barrier);
    end();
}

/* PE 0 does not come to the barrier: past TERN_DEVICE_TIMEOUT_MS the others' ends, and the reason names it. */
static void test_late_barrier(void)
{
    tern_ctx_t ctx;
    setenv("TERN_DEVICE_TIMEOUT_MS", "300", 1);
    device_test_init(&ctx, 1);
    if (tern_n_pes() > 1) {
        uint32_t *counts = counts_new();
        cudaDeviceSynchronize();
        if (tern_my_pe() > 0)
            REQUIRE(tern_launch(barrier_kernel, 1, 40, 0, NULL, ctx, counts) == TERN_OK, "%s", tern_last_error());
        expect_abort("late barrier", "tern_barrier_all", "waited more than 300 ms for PE 0");
        check_counts("late barrier", counts, tern_my_pe() > 0 ? 40 : 0);
        cudaFree(counts);
    }
    end();
    unsetenv("TERN_DEVICE_TIMEOUT_MS");
}

int main(int argc, char **argv)
{
    tern_ctx_t stale;
    setenv("TERN_LOG", "none", 0);
    if (argc > 1 && !strcmp(argv[1], "report")) {
        test_report(5);
        return test_end("fail");
    }
    if (argc > 1 && !strcmp(argv[1], "abort")) {
        test_abort();
        return test_end("fail");
    }
    device_test_init(&stale, 1);
    end();
    for (int bad = 0; bad < BAD_COUNT; bad++)
        play_bad(bad, stale);
    test_report(3);
    test_report_soon();
    test_abort();
    test_late_barrier();
    return test_end("fail");
}
