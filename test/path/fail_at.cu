/*
 * fail_at.cu - operation k to PE 1 fails, for one k after the other, in one job that initialises again and again. It
 * must end with the same status, PE, operation and ring each time; with TERN_ON_DEATH=mask two PEs that have nothing to
 * do with it finish their exchange with right data. Arguments: last k (20), random ones beyond it (5). Needs 4 PEs.
 *
 * PE 0 runs a mixed program against PE 1, one block, so that all goes through one ring; PEs 2 and 3 send each other
 * rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_test.h"

#define STEPS 600
#define ROW 1024
#define ROUNDS 20

struct fail_box {
    uint64_t flag, ack, words[6];
    char row[ROW], got[ROW];
};

/* Names in messages of step i. */
static const char *const names[] = {"put of 1000 bytes", "put of 8 bytes", "put_signal of 640 bytes",
                                    "get of 504 bytes", "get of 4 bytes"};

__global__ void fail_program(tern_ctx_t ctx, struct fail_box *box, int steps, uint32_t *status)
{
    tern_status_t s = TERN_OK;
    for (int i = 0; i < steps && s == TERN_OK; i++) {
        switch (i % 5) {
        case 0:
            tern_put_nbi_block(ctx, box->got, box->row, 1000, 1);
            break;
        case 1:
            if (threadIdx.x == 0)
                tern_uint64_p(ctx, &box->words[2], (uint64_t)i, 1);
            break;
        case 2:
            tern_put_signal_nbi_block(ctx, box->got, box->row, 640, &box->words[3], (uint64_t)i, TERN_SIGNAL_SET, 1);
            break;
        case 3:
            tern_get_nbi_block(ctx, box->got, box->row, 504, 1);
            break;
        default:
            if (threadIdx.x == 0)
                tern_uint32_g(ctx, (uint32_t *)&box->words[4], 1);
            break;
        }
        if (i % 10 == 9)
            s = tern_quiet_block(ctx);
    }
    if (s == TERN_OK)
        s = tern_quiet_block(ctx);
    if (threadIdx.x == 0)
        *status = (uint32_t)s;
}

/* Rows there and back, each checked. */
__global__ void fail_pair(tern_ctx_t ctx, struct fail_box *box, int peer, uint32_t *status)
{
    tern_status_t s = TERN_OK;
    bool wrong = false;
    for (uint64_t round = 1; round <= ROUNDS && s == TERN_OK; round++) {
        for (unsigned i = threadIdx.x; i < ROW; i += blockDim.x)
            box->row[i] = (char)(round * 7 + i + (unsigned)ctx.my_pe);
        tern_put_signal_nbi_block(ctx, box->got, box->row, ROW, &box->flag, round, TERN_SIGNAL_SET, peer);
        s = tern_signal_wait_until_block(ctx, &box->flag, TERN_CMP_GE, round);
        for (unsigned i = threadIdx.x; i < ROW && s == TERN_OK; i += blockDim.x)
            wrong |= box->got[i] != (char)(round * 7 + i + (unsigned)peer);
        __syncthreads();
        if (threadIdx.x == 0)
            tern_signal_op(ctx, &box->ack, round, TERN_SIGNAL_SET, peer);
        if (s == TERN_OK)
            s = tern_signal_wait_until_block(ctx, &box->ack, TERN_CMP_GE, round);
    }
    if (s == TERN_OK)
        s = tern_quiet_block(ctx);
    wrong = __syncthreads_or(wrong);
    if (threadIdx.x == 0)
        *status = s != TERN_OK ? (uint32_t)s : wrong ? 1000u : 0u;
}

static uint32_t run(tern_ctx_t ctx, struct fail_box *box, uint32_t *status)
{
    uint32_t got = 0;
    int pe = ctx.my_pe;
    if (pe == 0)
        REQUIRE(tern_launch(fail_program, 1, 32, 0, NULL, ctx, box, STEPS, status) == TERN_OK, "%s", tern_last_error());
    else if (pe > 1)
        REQUIRE(tern_launch(fail_pair, 1, 32, 0, NULL, ctx, box, 5 - pe, status) == TERN_OK, "%s", tern_last_error());
    device_test_wait("fail_at");
    cudaMemcpy(&got, status, sizeof got, cudaMemcpyDeviceToHost);
    return got;
}

/* The message names what failed, to whom and where. */
static void check_message(const char *text, int k, char *ring, size_t ring_bytes)
{
    const char *name = names[(k - 1) % 5], *at = strstr(text, " (proxy thread ");
    CHECK(strstr(text, name) && strstr(text, " PE 1 ") && at, "k %d: '%s' does not name '%s' and PE 1", k, text, name);
    snprintf(ring, ring_bytes, "%.*s", at ? (int)strcspn(at, ")") : 0, at ? at : "");
}

/* One init with the k-th operation failing. The two modes end differently for PEs that are not concerned. */
static void fail_at(int k, bool mask, char *ring, size_t ring_bytes)
{
    char faults[64];
    tern_ctx_t ctx;
    snprintf(faults, sizeof faults, "fail=%d,pe=1", k);
    setenv("TERN_LOOPBACK_FAULTS", faults, 1);
    setenv("TERN_ON_DEATH", mask ? "mask" : "abort", 1);
    device_test_init(&ctx, 0);
    struct fail_box *box = (struct fail_box *)tern_calloc(1, sizeof *box);
    uint32_t *status = (uint32_t *)tern_calloc(1, 64);
    REQUIRE(box && status, "%s", tern_last_error());
    uint32_t got = run(ctx, box, status);
    if (mask) {
        uint32_t want = ctx.my_pe == 0 ? (uint32_t)TERN_ERR_TRANSPORT : 0;
        CHECK(got == want, "k %d, mask: PE %d ended with %u, not %u", k, ctx.my_pe, got, want);
        CHECK(tern_status() == TERN_OK, "k %d, mask: the job was aborted: %s", k, tern_abort_reason());
    } else {
        CHECK(ctx.my_pe > 0 || got == TERN_ERR_ABORTED, "k %d: PE 0 ended with %u", k, got);
        while (tern_status() == TERN_OK)
            ; /* the reason is on its way */
        check_message(tern_abort_reason(), k, ring, ring_bytes);
    }
    tern_status_t end = tern_finalize();
    CHECK(end == TERN_OK || (mask && ctx.my_pe == 0 && end == TERN_ERR_TRANSPORT), "k %d: tern_finalize: %s", k,
          tern_last_error());
}

int main(int argc, char **argv)
{
    int last = argc > 1 ? atoi(argv[1]) : 20, more = argc > 2 ? atoi(argv[2]) : 5;
    char ring[64], first[64] = "";
    setenv("TERN_DISABLE_P2P", "1", 1);
    setenv("TERN_TRANSPORT", "loopback", 1);
    setenv("TERN_LOG", "none", 1);
    tern_ctx_t ctx;
    device_test_init(&ctx, 0);
    uint64_t state = device_test_seed();
    int n = ctx.n_pes;
    device_test_done();
    if (n != 4) {
        printf("skipped: needs 4 PEs\n");
        return TEST_SKIP;
    }
    for (int i = 1; i <= last + more; i++) {
        int k = i <= last ? i : last + 1 + (int)(test_random(&state) % (STEPS - (unsigned)last));
        fail_at(k, false, ring, sizeof ring);
        if (i == 1)
            snprintf(first, sizeof first, "%s", ring);
        fail_at(k, true, ring, sizeof ring);
        if (i % 5 == 0)
            fail_at(k, false, ring, sizeof ring);
        CHECK(!strncmp(ring, first, 15), "k %d: '%s', first '%s'", k, ring, first);
        if (test_failures)
            break;
    }
    return test_end("fail_at");
}
