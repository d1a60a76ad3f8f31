/* device_test.h - begin and end of the device tests' programs. */
#ifndef TEST_DEVICE_TEST_H
#define TEST_DEVICE_TEST_H

#include <tern/device.h>

#include "common/check.h"

/* `check`: TERN_CHECK, so that tests can show that right calls pass the checks. */
static inline void device_test_init(tern_ctx_t *ctx, int check)
{
    setenv("TERN_CHECK", check ? "1" : "0", 1);
    tern_status_t status = tern_init();
    if (status == TERN_ERR_NO_DEVICE) {
        printf("skipped: no GPU: %s\n", tern_last_error());
        exit(TEST_SKIP);
    }
    REQUIRE(status == TERN_OK && tern_ctx(ctx) == TERN_OK, "tern_init: %s", tern_last_error());
}

static inline void device_test_done(void)
{
    CHECK(tern_finalize() == TERN_OK, "tern_finalize: %s", tern_last_error());
}

/* One seed for all PEs: that of PE 0. */
static inline uint64_t device_test_seed(void)
{
    uint64_t seed = test_seed(), *word = (uint64_t *)tern_calloc(2, sizeof *word);
    REQUIRE(word, "%s", tern_last_error());
    cudaMemcpy(word, &seed, sizeof seed, cudaMemcpyHostToDevice);
    for (int pe = 0; tern_my_pe() == 0 && pe < tern_n_pes(); pe++)
        REQUIRE(tern_put_on_stream(word + 1, word, sizeof seed, pe, NULL) == TERN_OK, "%s", tern_last_error());
    cudaDeviceSynchronize();
    REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    cudaMemcpy(&seed, word + 1, sizeof seed, cudaMemcpyDeviceToHost);
    REQUIRE(tern_free(word) == TERN_OK, "%s", tern_last_error());
    return seed;
}

/* Run to the end what was launched. */
static inline void device_test_wait(const char *what)
{
    cudaError_t error = cudaDeviceSynchronize();
    REQUIRE(error == cudaSuccess, "%s: %s", what, cudaGetErrorString(error));
}

#endif
