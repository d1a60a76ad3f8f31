/*
 * order.cu - can the CPU device show what is wrong? One block puts data and raises a flag, another waits and reads. Each
 * mode orders that in another way, rightly or not. Right ones must pass everywhere; a wrong one must give wrong data in the
 * weak-memory build, or a race report under ThreadSanitizer (meson.build names which): else litmus tests prove nothing.
 * Usage: order MODE [iterations]; exit status 3: wrong data was read.
 */
#include <tern/device.h>
#include "common/check.h"

#define THREADS 32

#define MODES(X)                                                                                                       \
    X(release) X(relaxed) X(fence) X(fence_gpu) X(fence_early) X(no_barrier) X(rmw) X(rmw_relaxed) X(warp) X(shuffle)  \
    X(load_fence) X(load_relaxed) X(other_thread) X(scalar)
enum {
#define MODE_ENUM(name) MODE_##name,
    MODES(MODE_ENUM)
#undef MODE_ENUM
    MODE_COUNT
};
static const char *const names[] = {
#define MODE_NAME(name) #name,
    MODES(MODE_NAME)
#undef MODE_NAME
};

struct area {
    tern_v4_t data[THREADS];
    uint64_t word[THREADS];
    uint64_t pad0[16], flag, pad1[16], ack, pad2[16];
    unsigned wrong, forwarded_wrong;
};

/* All threads have put; let the flag follow. */
__device__ static void raise_flag(int mode, struct area *a, uint64_t it)
{
    if (mode == MODE_fence_early && threadIdx.x == 0)
        tern_prim_fence_sys();
    if (mode == MODE_warp)
        __syncwarp();
    else if (mode == MODE_shuffle)
        (void)__shfl_xor_sync(0xffffffffu, 1, 1);
    else if (mode != MODE_no_barrier)
        __syncthreads();
    if (mode == MODE_other_thread) {
        if (threadIdx.x == 0)
            tern_prim_fence_sys();
        __syncthreads();
        if (threadIdx.x == 1)
            tern_prim_st_relaxed_u64(&a->flag, it);
        return;
    }
    if (threadIdx.x)
        return;
    if (mode == MODE_fence || mode == MODE_rmw)
        tern_prim_fence_sys();
    if (mode == MODE_fence_gpu)
        tern_prim_fence_gpu();
    if (mode == MODE_rmw || mode == MODE_rmw_relaxed)
        tern_prim_red_add_u64(&a->flag, 1);
    else if (mode == MODE_relaxed || mode == MODE_fence || mode == MODE_fence_gpu || mode == MODE_fence_early)
        tern_prim_st_relaxed_u64(&a->flag, it);
    else
        tern_prim_st_release_u64(&a->flag, it);
}

__device__ static void await_flag(int mode, struct area *a, uint64_t it)
{
    if (threadIdx.x == 0) {
        bool relaxed = mode == MODE_load_fence || mode == MODE_load_relaxed;
        while ((relaxed ? tern_prim_ld_relaxed_u64(&a->flag) : tern_prim_ld_acquire_u64(&a->flag)) != it)
            tern_prim_pause();
        if (mode == MODE_load_fence)
            tern_prim_fence_sys();
    }
    __syncthreads();
}

__global__ void play(struct area *a, int mode, unsigned iterations)
{
    unsigned t = threadIdx.x, wrong = 0, other = (t + 5) % THREADS;
    for (uint64_t it = 1; it <= iterations; it++) {
        if (blockIdx.x == 0) {
            uint32_t v = (uint32_t)it * 1000u + t;
            if (mode == MODE_scalar)
                tern_prim_st_relaxed_u64(&a->word[t], v);
            else
                tern_prim_st_v4(&a->data[t], (tern_v4_t){v, v + 1, v + 2, v + 3});
            wrong += mode == MODE_scalar ? tern_prim_ld_relaxed_u64(&a->word[t]) != v : tern_prim_ld_v4(&a->data[t]).z != v + 2;
            raise_flag(mode, a, it);
            if (t == 0)
                while (tern_prim_ld_acquire_u64(&a->ack) != it)
                    tern_prim_pause();
            __syncthreads();
        } else {
            await_flag(mode, a, it);
            uint32_t v = (uint32_t)it * 1000u + other;
            if (mode == MODE_scalar) {
                wrong += tern_prim_ld_relaxed_u64(&a->word[other]) != v;
            } else {
                tern_v4_t d = tern_prim_ld_v4(&a->data[other]);
                wrong += d.x != v || d.y != v + 1 || d.z != v + 2 || d.w != v + 3;
            }
            __syncthreads();
            if (t == 0)
                tern_prim_st_release_u64(&a->ack, it);
        }
    }
    if (wrong)
        atomicAdd(blockIdx.x ? &a->wrong : &a->forwarded_wrong, wrong);
}

int main(int argc, char **argv)
{
    int mode = 0;
    unsigned iterations = argc > 2 ? (unsigned)atoi(argv[2]) : 300;
    while (mode < MODE_COUNT && argc > 1 && strcmp(names[mode], argv[1]))
        mode++;
    REQUIRE(argc > 1 && mode < MODE_COUNT, "usage: order MODE [iterations]");
    struct area *a;
    REQUIRE(cudaMallocHost(&a, sizeof *a) == cudaSuccess, "memory");
    memset(a, 0, sizeof *a);
    play<<<2, THREADS>>>(a, mode, iterations);
    CHECK(cudaDeviceSynchronize() == cudaSuccess, "the kernel failed");
    CHECK(a->forwarded_wrong == 0, "a thread did not see its own store, %u times", a->forwarded_wrong);
    printf("%s: %u of %u words wrong\n", names[mode], a->wrong, iterations * THREADS);
    int status = test_failures ? 1 : a->wrong ? 3 : 0;
    cudaFreeHost(a);
    return status;
}
