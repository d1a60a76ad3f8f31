/*
 * kernel.cu - blocks, warps, shared memory and atomics behave as CUDA says: barriers and their votes, shuffles of all kinds
 * and widths, partial masks and threads that end early, shared memory that is fresh in each block, waves of more blocks
 * than can be resident, spin waits within and between blocks.
 */
#include <tern/device.h>
#include "common/check.h"

#ifdef TERN_CPU_TSAN
#define THREADS 64u                     /* TSAN has few fibers */
#else
#define THREADS 1024u
#endif
#define FULL 0xffffffffu

static void wait_device(const char *what)
{
    cudaError_t error = cudaDeviceSynchronize();
    REQUIRE(error == cudaSuccess, "%s: %s", what, cudaGetErrorString(error));
}

/* ---- block barriers ------------------------------------------------------------------------------------------------------ */

__global__ void votes(unsigned *bad, unsigned seed)
{
    unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned n = blockDim.x * blockDim.y * blockDim.z, wrong = 0;
    for (unsigned round = 0; round < 20; round++) {
        unsigned k = (seed + round * 7919u) % (n + 1);          /* so many threads say yes */
        wrong += (unsigned)__syncthreads_count(t < k) != k;
        wrong += (__syncthreads_or(t < k) != 0) != (k > 0);
        wrong += (__syncthreads_and(t < k) != 0) != (k == n);
    }
    if (wrong)
        atomicAdd(bad, wrong);
}

/* Threads end at different times; the barriers go on with those that are left. */
__global__ void leavers(unsigned *bad)
{
    __shared__ unsigned left;
    unsigned t = threadIdx.x;
    for (unsigned round = 0; t >= round && round < blockDim.x; round++) {
        unsigned here = (unsigned)__syncthreads_count(1);
        if (here != blockDim.x - round)
            atomicAdd(bad, 1u);
        if (t == blockDim.x - 1)
            left = here;
    }
    if (t == blockDim.x - 1 && left != 1)
        atomicAdd(bad, 1u);
}

/* ---- warps ------------------------------------------------------------------------------------------------------------- */

__global__ void shuffles(unsigned *bad)
{
    int lane = (int)(threadIdx.x & 31u), wrong = 0;
    for (int width = 1; width <= 32; width *= 2) {
        int first = lane / width * width, last = first + width - 1;
        for (int d = 0; d < 32; d++) {
            double v = 1000.0 * threadIdx.x + 0.5;
            double up = __shfl_up_sync(FULL, v, d, width), down = __shfl_down_sync(FULL, v, d, width);
            double from = __shfl_sync(FULL, v, d, width), x = __shfl_xor_sync(FULL, v, d, width);
            int base = (int)threadIdx.x - lane;
            int up_lane = lane - d >= first ? lane - d : lane, down_lane = lane + d <= last ? lane + d : lane;
            int x_lane = (lane ^ d) >= first && (lane ^ d) <= last ? lane ^ d : lane;
            wrong += up != 1000.0 * (base + up_lane) + 0.5;
            wrong += down != 1000.0 * (base + down_lane) + 0.5;
            wrong += from != 1000.0 * (base + first + d % width) + 0.5;
            wrong += d < width && x != 1000.0 * (base + x_lane) + 0.5;
        }
    }
    if (wrong)
        atomicAdd(bad, (unsigned)wrong);
}

__global__ void warp_votes(unsigned *bad)
{
    unsigned lane = threadIdx.x & 31u, wrong = 0;
    for (unsigned k = 0; k <= 32; k++) {
        unsigned yes = k == 32 ? FULL : (1u << k) - 1;
        wrong += __ballot_sync(FULL, lane < k) != yes;
        wrong += (__any_sync(FULL, lane < k) != 0) != (k > 0);
        wrong += (__all_sync(FULL, lane < k) != 0) != (k == 32);
    }
    unsigned same = __match_any_sync(FULL, lane % 3), want = 0;
    for (unsigned other = lane % 3; other < 32; other += 3)
        want |= 1u << other;
    wrong += same != want;
    wrong += !(__activemask() >> lane & 1u);
    if (wrong)
        atomicAdd(bad, wrong);
}

/* Halves and pairs of a warp do different things at the same time, some lanes have ended. */
__global__ void partial(unsigned *bad, int gone)
{
    int lane = (int)(threadIdx.x & 31u), wrong = 0;
    if (lane < gone)
        return;                         /* non-exited threads of the mask are enough */
    __syncwarp();
    unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u, pair = 3u << (lane & ~1);
    if (lane < 16) {
        wrong += __ballot_sync(half, 1) != (0x0000ffffu & ~((1u << gone) - 1));
    } else {
        for (int i = 0; i < 5; i++)
            wrong += __shfl_xor_sync(half, lane, 8) != (lane ^ 8);
    }
    if ((lane & ~1) >= gone)
        wrong += __shfl_xor_sync(pair, lane, 1) != (lane ^ 1);
    __syncwarp();
    if (wrong)
        atomicAdd(bad, (unsigned)wrong);
}

/* Lanes end while others already wait for them: in a __syncwarp, and in a vote of a part of the warp. */
__global__ void late_leavers(unsigned *bad, int stay)
{
    int lane = (int)(threadIdx.x & 31u);
    if (lane >= stay) {
        for (int i = 0; i < lane; i++)
            tern_prim_pause();
        return;
    }
    if (lane % 2)
        __syncwarp(0xaaaaaaaau);
    else if (__ballot_sync(0x55555555u, 1) != (0x55555555u & ((1u << stay) - 1)))
        atomicAdd(bad, 1u);
}

/* ---- shared memory ----------------------------------------------------------------------------------------------------- */

/* A variable is one for the block, has nothing of the block before, and dynamic memory is as large as the launch says. */
__global__ void shared_fresh(unsigned *bad, unsigned bytes)
{
    __shared__ unsigned a[7];
    __shared__ unsigned char c;
    __shared__ double d;
    extern __shared__ unsigned char dynamic[];
    unsigned wrong = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 7; i++)
            wrong += a[i] == 0x12345678u;
        wrong += (uintptr_t)&d % alignof(double) != 0 || (uintptr_t)dynamic % 16 != 0;
        wrong += !tern_prim_is_shared(&c) || !tern_prim_is_shared(dynamic) || tern_prim_is_shared(&wrong);
        for (unsigned i = 0; i < bytes; i++)
            wrong += dynamic[i] == 0x5a;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x)
        dynamic[i] = 0x5a;
    if (threadIdx.x < 7)
        a[threadIdx.x] = 0x12345678u;
    if (threadIdx.x == 0) {
        c = 7;
        d = 2.5;
    }
    __syncthreads();
    wrong += c != 7 || d != 2.5 || a[threadIdx.x % 7] != 0x12345678u;
    if (wrong)
        atomicAdd(bad, wrong);
}

/* ---- atomics ------------------------------------------------------------------------------------------------------------ */

struct sums {
    int i, low, high;
    unsigned u, all_or, all_and, all_xor, wrap, down, sum_swap;
    unsigned long long l, cas;
    float f;
    double d;
};

__global__ void atomics(struct sums *s)
{
    unsigned t = threadIdx.x + blockIdx.x * blockDim.x;
    atomicAdd(&s->i, -1);
    atomicAdd(&s->u, t);
    atomicAdd(&s->l, 0x100000000ull);
    atomicAdd(&s->f, 1.0f);
    atomicAdd(&s->d, 0.5);
    atomicMin(&s->low, -(int)t);
    atomicMax(&s->high, (int)t);
    atomicOr(&s->all_or, 1u << (t % 32));
    atomicAnd(&s->all_and, ~(1u << (t % 16)));
    atomicXor(&s->all_xor, 1u << (t % 32));
    atomicInc(&s->wrap, 6);
    atomicDec(&s->down, 6);
    unsigned long long seen = atomicCAS(&s->cas, 0, 0), old;
    do {
        old = seen;
        seen = atomicCAS(&s->cas, old, old + 3);
    } while (seen != old);
}

static void test_atomics(void)
{
    struct sums *s;
    unsigned n = 4 * THREADS;
    REQUIRE(cudaMallocHost(&s, sizeof *s) == cudaSuccess, "memory");
    memset(s, 0, sizeof *s);
    s->all_and = FULL;
    atomics<<<4, THREADS>>>(s);
    wait_device("atomics");
    CHECK(s->i == -(int)n && s->u == n * (n - 1) / 2 && s->l == (unsigned long long)n << 32, "sums of integers");
    CHECK(s->f == (float)n && s->d == 0.5 * n, "sums of floats: %f %f", s->f, s->d);
    CHECK(s->low == 1 - (int)n && s->high == (int)n - 1, "min, max: %d %d", s->low, s->high);
    CHECK(s->all_or == FULL && s->all_and == 0xffff0000u && s->all_xor == 0, "bits: %x %x %x", s->all_or, s->all_and, s->all_xor);
    CHECK(s->wrap == n % 7 && s->down == (7 - n % 7) % 7, "wrapping: %u %u", s->wrap, s->down);
    CHECK(s->cas == 3ull * n, "compare and swap: %llu", s->cas);
    cudaFreeHost(s);
}

/* ---- waves, spins ------------------------------------------------------------------------------------------------------- */

__global__ void waves(unsigned *ran)
{
    if (threadIdx.x == 0)
        atomicAdd(&ran[blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)], 1u);
    __syncthreads();
}

/* Each thread waits for its neighbour in the block, and the last for the block before: all kinds of spin loops. */
__global__ void chain(unsigned *turn, unsigned rounds)
{
    unsigned n = blockDim.x * gridDim.x, me = threadIdx.x + blockIdx.x * blockDim.x;
    for (unsigned round = 0; round < rounds; round++) {
        unsigned mine = round * n + me;
        if (me % 4 == 0)
            while (tern_prim_ld_acquire_u32(turn) != mine)
                tern_prim_pause();
        else if (me % 4 == 1)
            while (atomicAdd(turn, 0u) != mine)
                ;
        else if (me % 4 == 2)
            while (tern_prim_ld_relaxed_u32(turn) != mine)
                __nanosleep(100);
        else
            for (long long start = clock64(); tern_prim_ld_relaxed_u32(turn) != mine && clock64() >= start;)
                ;
        __threadfence();
        tern_prim_st_release_u32(turn, mine + 1);
    }
}

#ifndef TERN_CPU_TSAN
/* All blocks wait for the last, in a loop that tells nobody: they must all become resident all the same. */
__global__ void silent(unsigned *arrived)
{
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned *)arrived < gridDim.x)
            ;
    }
    __syncthreads();
}

static void test_silent(void)
{
    unsigned *arrived;
    REQUIRE(cudaMallocHost(&arrived, sizeof *arrived) == cudaSuccess, "memory");
    *arrived = 0;
    silent<<<20, 64>>>(arrived);
    wait_device("silent waits");
    CHECK(*arrived == 20, "%u", *arrived);
    cudaFreeHost(arrived);
}
#endif

static void test_waves(uint64_t *seed)
{
    dim3 grid(1 + (unsigned)(test_random(seed) % 90), 1 + (unsigned)(test_random(seed) % 7), 1 + (unsigned)(test_random(seed) % 3));
    unsigned blocks = grid.x * grid.y * grid.z, *ran, wrong = 0;
    REQUIRE(cudaMallocHost(&ran, blocks * sizeof *ran) == cudaSuccess, "memory");
    memset(ran, 0, blocks * sizeof *ran);
    waves<<<grid, THREADS>>>(ran);
    wait_device("waves");
    for (unsigned i = 0; i < blocks; i++)
        wrong += ran[i] != 1;
    CHECK(!wrong, "%u of %u blocks did not run once", wrong, blocks);
    cudaFreeHost(ran);
}

static void test_chain(void)
{
    unsigned *turn;
    REQUIRE(cudaMallocHost(&turn, sizeof *turn) == cudaSuccess, "memory");
    *turn = 0;
    chain<<<3, 8>>>(turn, 20);
    wait_device("chain");
    CHECK(*turn == 3 * 8 * 20, "%u", *turn);
    cudaFreeHost(turn);
}

int main(void)
{
    uint64_t seed = test_seed();
    unsigned *bad;
    REQUIRE(cudaMallocHost(&bad, sizeof *bad) == cudaSuccess, "memory");
    unsigned k = (unsigned)test_random(&seed);
    dim3 odd(1 + k % 9, 1 + k / 9 % 5, 1 + k / 64 % 3);
    *bad = 0;
    votes<<<3, odd>>>(bad, k);
    votes<<<2, THREADS>>>(bad, k);
    wait_device("votes");
    CHECK(!*bad, "votes: %u wrong", *bad);
    leavers<<<2, 60>>>(bad);
    wait_device("leavers");
    CHECK(!*bad, "leavers: %u wrong", *bad);
    shuffles<<<2, 64>>>(bad);
    warp_votes<<<2, 64>>>(bad);
    for (int gone = 0; gone < 16; gone++)
        partial<<<1, 64>>>(bad, gone);
    for (int stay = 1; stay < 32; stay += 5)
        late_leavers<<<1, 64>>>(bad, stay);
    wait_device("warps");
    CHECK(!*bad, "warps: %u wrong", *bad);
    unsigned bytes = k % 40000;
    shared_fresh<<<40, 64, bytes>>>(bad, bytes);
    wait_device("shared memory");
    CHECK(!*bad, "shared memory: %u wrong", *bad);
    test_atomics();
    test_waves(&seed);
    test_chain();
#ifndef TERN_CPU_TSAN
    test_silent();
#endif
    cudaFreeHost(bad);
    return test_end("kernel");
}
