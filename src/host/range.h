/*
 * range.h - named ranges of host calls for profilers (NVTX), on the CUDA device where its headers are; else nothing.
 * TERN_RANGE("tern_malloc") stands first in a call and ends with it. Without a profiler a range costs a load and a branch.
 */
#ifndef TERN_HOST_RANGE_H
#define TERN_HOST_RANGE_H

#ifdef TERN_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>

static inline void tern_range_end(const int *range)
{
    (void)range;
    nvtxRangePop();
}

#define TERN_RANGE(name) __attribute__((cleanup(tern_range_end), unused)) int tern_range = nvtxRangePushA(name)
#else
#define TERN_RANGE(name) (void)0
#endif

#endif
