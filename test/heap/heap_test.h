/* heap_test.h - what the heap's multi-PE programs share: start, a common seed, contents written and read on both
 * devices. */
#ifndef TEST_HEAP_TEST_H
#define TEST_HEAP_TEST_H

#include <tern/device.h>

#include "common/check.h"

static inline void heap_test_init(void)
{
    tern_status_t status = tern_init();

    if (status == TERN_ERR_NO_DEVICE) {
        printf("skipped: no GPU: %s\n", tern_last_error());
        exit(TEST_SKIP);
    }
    REQUIRE(status == TERN_OK, "tern_init: %s", tern_last_error());
}

static inline tern_info_t heap_test_info(void)
{
    tern_info_t info;

    memset(&info, 0, sizeof(info));
    info.size = sizeof(info);
    REQUIRE(tern_get_info(&info) == TERN_OK, "%s", tern_last_error());
    return info;
}

/* Write own heap memory, done on return: a cudaMemcpy from pageable memory may still be on its way when it returns. */
static inline void heap_test_write(void *dst, const void *src, size_t bytes)
{
    REQUIRE(cudaMemcpy(dst, src, bytes, cudaMemcpyHostToDevice) == cudaSuccess &&
                cudaStreamSynchronize(NULL) == cudaSuccess,
            "copy of %zu bytes to the heap", bytes);
}

/* The word `mine` of every PE, through the heap. */
static inline void heap_test_gather(uint64_t mine, uint64_t *all)
{
    uint64_t *word = (uint64_t *)tern_malloc(sizeof(*word));

    REQUIRE(word, "%s", tern_last_error());
    heap_test_write(word, &mine, sizeof(mine));
    REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    for (int pe = 0; pe < tern_n_pes(); pe++) {
        void *at = tern_ptr(word, pe);

        REQUIRE(at, "PE %d is not near", pe);
        REQUIRE(cudaMemcpy(&all[pe], at, sizeof(*all), cudaMemcpyDeviceToHost) == cudaSuccess, "copy from PE %d", pe);
    }
    REQUIRE(tern_free(word) == TERN_OK, "%s", tern_last_error());
}

/* Same value on all PEs? */
static inline bool heap_test_same(uint64_t mine)
{
    uint64_t all[64];

    heap_test_gather(mine, all);
    for (int pe = 0; pe < tern_n_pes(); pe++)
        if (all[pe] != mine)
            return false;
    return true;
}

/* PE 0's seed, on all PEs. */
static inline uint64_t heap_test_seed(void)
{
    uint64_t all[64];

    heap_test_gather(test_seed(), all);
    return all[0];
}

#endif
