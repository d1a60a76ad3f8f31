/* device.h - what the kernels of tern-bench share: units of work, the clock, failures. */
#ifndef TERN_BENCH_DEVICE_H
#define TERN_BENCH_DEVICE_H

#include <tern/device.h>

#include "bench.h"

#define BENCH_DEV static __device__ __forceinline__

/* The threads that make a call together. */
struct bench_unit {
    unsigned rank, threads;  /* within the unit */
    unsigned number, units;  /* of the whole grid */
    bool first;              /* first unit of its block: ping-pongs and barriers have no other */
};

/* `scope` is a constant wherever time is taken, so that all of this folds. */
BENCH_DEV struct bench_unit bench_unit_of(int scope)
{
    struct bench_unit u;
    u.threads = scope == BENCH_BLOCK ? blockDim.x : scope == BENCH_WARP ? 32 : 1;
    u.rank = threadIdx.x % u.threads;
    u.number = (blockIdx.x * blockDim.x + threadIdx.x) / u.threads;
    u.units = gridDim.x * blockDim.x / u.threads;
    u.first = threadIdx.x < u.threads;
    return u;
}

BENCH_DEV void bench_unit_sync(int scope)
{
    if (scope == BENCH_WARP)
        __syncwarp();
    else if (scope == BENCH_BLOCK)
        __syncthreads();
}

/* The unit's piece of `bytes`: all but the last end on a boundary of 16 bytes. */
BENCH_DEV void bench_piece(struct bench_unit u, uint64_t bytes, uint64_t *offset, uint64_t *piece)
{
    uint64_t share = (bytes + u.units - 1) / u.units;
    if (u.units > 1)
        share = (share + 15) & ~(uint64_t)15;
    *offset = u.number * share < bytes ? u.number * share : bytes;
    *piece = bytes - *offset < share ? bytes - *offset : share;
}

/* Before round `round`: the clock starts behind the warm-up. Thread 0 of the block keeps the time. */
BENCH_DEV void bench_round(const struct bench_args *a, uint32_t round)
{
    if (round == a->warmup && threadIdx.x == 0)
        a->out[blockIdx.x].begin = tern_prim_clock_ns();
}

/* All threads of the block, whether they worked or not. */
BENCH_DEV void bench_end(const struct bench_args *a)
{
    __syncthreads();
    if (threadIdx.x == 0)
        a->out[blockIdx.x].end = tern_prim_clock_ns();
}

BENCH_DEV bool bench_ok(const struct bench_args *a, tern_status_t status)
{
    if (status != TERN_OK)
        a->out[blockIdx.x].status = (int32_t)status;
    return status == TERN_OK;
}

BENCH_DEV void bench_wrong(struct bench_out *out, uint64_t count)
{
    if (count)
        atomicAdd((unsigned long long *)&out->wrong, (unsigned long long)count);
}

/* Operand of an atomic in its `n`th round; check.cu repeats what the word went through. */
#define BENCH_ATOMIC_START(T) ((T)0x5a5a5a5a5a5a5a5aull)
BENCH_DEV uint64_t bench_operand(int op, uint64_t n)
{
    switch (op) {
    case BENCH_OP_AND:
    case BENCH_OP_FETCH_AND:
        return ~(1ull << n % 31);
    case BENCH_OP_OR:
    case BENCH_OP_FETCH_OR:
        return 1ull << n % 31;
    case BENCH_OP_XOR:
    case BENCH_OP_FETCH_XOR:
        return n % 1021 + 1;
    case BENCH_OP_ADD:
    case BENCH_OP_FETCH_ADD:
        return n % 3;
    default: /* swap, compare_swap, set */
        return n % 1000003 + 1;
    }
}

#endif
