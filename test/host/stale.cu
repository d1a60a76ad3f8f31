/*
 * stale.cu - TERN_CHECK=1: a context of an ended runtime is found by the kernel that uses it, also after a job abort; the
 * job is aborted with that reason, and a new start works.
 */
#include <unistd.h>

#include <tern/device.h>

#include "common/check.h"

__global__ void put_kernel(tern_ctx_t ctx, uint64_t *dst)
{
    tern_uint64_p(ctx, dst, 7, tern_my_pe(ctx));
    tern_quiet(ctx);
}

static tern_status_t put(tern_ctx_t ctx, uint64_t *dst)
{
    tern_status_t status = tern_launch(put_kernel, dim3(1), dim3(1), 0, NULL, ctx, dst);
    if (status == TERN_OK && cudaDeviceSynchronize() != cudaSuccess)
        status = TERN_ERR_DEVICE;
    return status;
}

/* The host hears of it within a tick of the control thread; it may take longer where the machine is busy. */
static tern_status_t status_soon(void)
{
    for (int ms = 0; ms < 30000 && tern_status() == TERN_OK; ms++)
        usleep(1000);
    return tern_status();
}

int main(void)
{
    tern_ctx_t old, ctx;
    alarm(60);
    setenv("TERN_CHECK", "1", 1);
    REQUIRE(tern_init() == TERN_OK && tern_ctx(&old) == TERN_OK, "%s", tern_last_error());
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    for (int round = 0; round < 3; round++) {
        REQUIRE(tern_init() == TERN_OK && tern_ctx(&ctx) == TERN_OK, "%s", tern_last_error());
        uint64_t *dst = (uint64_t *)tern_calloc(1, sizeof *dst);
        REQUIRE(dst, "%s", tern_last_error());
        CHECK(put(ctx, dst) == TERN_OK && tern_barrier_all() == TERN_OK, "a good context: %s", tern_last_error());
        if (tern_my_pe() == 0)
            CHECK(put(old, dst) == TERN_OK, "the launch itself: %s", tern_last_error());
        CHECK(status_soon() == TERN_ERR_ABORTED, "%s", tern_status_name(tern_status()));
        CHECK(strstr(tern_abort_reason(), "a runtime that has ended"), "'%s'", tern_abort_reason());
        CHECK(strstr(tern_abort_reason(), "tern_p in a kernel of PE 0 (block 0, thread 0)"), "'%s'",
              tern_abort_reason());
        CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
        old = ctx;
    }
    return test_end("stale");
}
