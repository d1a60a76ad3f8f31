/*
 * planted.cu - one planted bug per argument, which the sanitizer of the build must report (expect.py looks for the report):
 * a sanitizer run that finds nothing means something only if these are found. `none` has no bug and must be quiet. On a GPU
 * gpu.py runs it under compute-sanitizer.
 */
#include <stdio.h>
#include <string.h>
#include <tern/device.h>

#define THREADS 32

__global__ void overrun_heap(int *data, int n)
{
    data[threadIdx.x + n] = 1;
}

__global__ void overrun_shared(int *data, int extra)
{
    __shared__ int part[THREADS];
    int *p = part;

    p[threadIdx.x + extra] = data[0];
    __syncthreads();
    data[threadIdx.x] = p[threadIdx.x];
}

__global__ void overrun_dynamic(int *data, int extra)
{
    extern __shared__ int dynamic[];

    dynamic[threadIdx.x + extra] = data[0];
    __syncthreads();
    data[threadIdx.x] = dynamic[threadIdx.x];
}

__device__ __noinline__ void fill(volatile int *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = i;
}

__global__ void overrun_stack(int *data, int extra)
{
    int local[8];

    fill(local, 8 + extra);
    __syncthreads();
    data[threadIdx.x] = local[threadIdx.x % 8];
}

__global__ void shift_too_far(int *data, int bits)
{
    data[threadIdx.x] = 1 << (bits + 31);
}

/*
 * Two blocks: one writes, one reads, ordered by a flag only if `ordered`. The writer begins when the reader runs: were it done
 * before, the end of its block would order the two.
 */
__global__ void race_blocks(int *data, uint64_t *flag, int ordered)
{
    if (threadIdx.x)
        return;
    if (blockIdx.x == 0) {
        while (!tern_prim_ld_relaxed_u64(flag + 1))
            tern_prim_pause();
        data[0] = 7;
        if (ordered)
            tern_prim_st_release_u64(flag, 1);
        else
            tern_prim_st_relaxed_u64(flag, 1);
    } else {
        tern_prim_st_relaxed_u64(flag + 1, 1);
        while (!tern_prim_ld_acquire_u64(flag))
            tern_prim_pause();
        data[1] = data[0];
    }
}

/* Threads of one block: a neighbour's value is read, after a block barrier only if `ordered`. */
__global__ void race_threads(int *data, int ordered)
{
    __shared__ int part[THREADS];

    part[threadIdx.x] = threadIdx.x;
    if (ordered)
        __syncthreads();
    data[threadIdx.x] = part[(threadIdx.x + 1) % THREADS];
}

/* Two bulk copies into one place in shared memory, the second after the first is there only if `ordered`. */
__global__ void race_bulk(int *data, int ordered)
{
#ifdef TERN_PRIM_BULK
    __shared__ char stage[256] __attribute__((aligned(128)));
    uint32_t barriers = tern_prim_shared_addr(stage), slot = barriers + 128, bytes = THREADS * sizeof *data;
    if (threadIdx.x)
        return;
    for (int k = 0; k < 2; k++)
        tern_prim_bulk_init(barriers + 8 * k);
    tern_prim_fence_async();
    for (int k = 0; k < 2; k++) {
        tern_prim_bulk_load(slot, data, bytes, barriers + 8 * k);
        if (ordered)
            tern_prim_bulk_load_wait(barriers + 8 * k, 0);
    }
    for (int k = 0; k < 2; k++)
        tern_prim_bulk_load_wait(barriers + 8 * k, 0);
#else
    data[threadIdx.x] = ordered;
#endif
}

int main(int argc, char **argv)
{
    const char *bug = argc > 1 ? argv[1] : "none";
    int *data = NULL;
    uint64_t *flag = NULL;

    if (cudaMalloc(&data, THREADS * sizeof *data) != cudaSuccess || cudaMalloc(&flag, 2 * sizeof *flag) != cudaSuccess)
        return 1;
    cudaMemset(data, 0, THREADS * sizeof *data);
    cudaMemset(flag, 0, 2 * sizeof *flag);
    overrun_heap<<<1, THREADS>>>(data, strcmp(bug, "heap") == 0);
    overrun_shared<<<1, THREADS>>>(data, strcmp(bug, "shared") == 0);
    overrun_dynamic<<<1, THREADS, THREADS * sizeof(int)>>>(data, strcmp(bug, "dynamic") == 0);
    overrun_stack<<<1, THREADS>>>(data, strcmp(bug, "stack") == 0);
    shift_too_far<<<1, THREADS>>>(data, strcmp(bug, "shift") == 0 ? 1 : -1);
    race_blocks<<<2, THREADS>>>(data, flag, strcmp(bug, "race-blocks") != 0);
    race_threads<<<1, THREADS>>>(data, strcmp(bug, "race-threads") != 0);
    race_bulk<<<1, THREADS>>>(data, strcmp(bug, "race-bulk") != 0);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 1;
    cudaFree(data);
    cudaFree(flag);
    printf("%s: the program ended by itself\n", bug);
    return 0;
}
