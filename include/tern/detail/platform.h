/*
 * tern/detail/platform.h - the language of device code: CUDA C++ under nvcc, else the CPU device's own definitions of the
 * same words (cpu.h). Device functions of the headers are internal to each source file, so that no device library, no
 * -rdc and no device global is needed.
 */
#ifndef TERN_DETAIL_PLATFORM_H
#define TERN_DETAIL_PLATFORM_H

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#include <tern/detail/cuda.h>
#else
#include <tern/detail/cpu.h>
#endif

/* Inlined at each call; the same for the host too; and out of line, for what is rare or long. */
#define TERN_DEV static __device__ __forceinline__
#define TERN_DEV_HOST static __host__ __device__ __forceinline__
#define TERN_DEV_SLOW static __device__ __noinline__ __attribute__((unused))

#endif
