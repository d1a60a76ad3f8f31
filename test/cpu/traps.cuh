/* traps.cuh - a kernel, shared memory and a launch in a header that is included with quotes. */
#ifndef TEST_CPU_TRAPS_CUH
#define TEST_CPU_TRAPS_CUH

static __global__ void header_kernel(int *out, int value)
{
    __shared__ int count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        out[0] = value;
        out[1] = count;
    }
}

static inline void from_header(int *out, int value)
{
    header_kernel<<<1, 64>>>(out, value);
}

#endif
