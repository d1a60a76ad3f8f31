/* tern/detail/cuda.h - launches on the CUDA device, through the CUDA runtime that the kernel's own source file uses. */
#ifndef TERN_DETAIL_CUDA_H
#define TERN_DETAIL_CUDA_H

#include <cuda_runtime.h>
#include <tern/tern.h>

static inline tern_status_t tern_launch_ptr(const void *fn, dim3 grid, dim3 block, void **args, size_t smem,
                                            tern_stream_t stream)
{
    cudaError_t error = cudaLaunchKernel(fn, grid, block, args, smem, (cudaStream_t)stream);
    return error == cudaSuccess ? TERN_OK : tern_launch_failed(cudaGetErrorName(error), cudaGetErrorString(error));
}

/* Arguments are converted to the kernel's parameter types, as by <<<>>>; only a template can see those. */
template <typename... P> struct tern_launcher {
    void (*kernel)(P...);
    dim3 grid, block;
    size_t smem;
    tern_stream_t stream;

    tern_status_t operator()(P... args) const
    {
        void *pointers[] = {(void *)&args..., nullptr};
        return tern_launch_ptr((const void *)kernel, grid, block, pointers, smem, stream);
    }
};

template <typename... P>
static inline tern_launcher<P...> tern_launch_with(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                                                   tern_stream_t stream)
{
    return {kernel, grid, block, smem, stream};
}

#define tern_launch(kernel, grid, block, smem, stream, ...)                                                            \
    tern_launch_with((kernel), (grid), (block), (smem), (stream))(__VA_ARGS__)

#endif
