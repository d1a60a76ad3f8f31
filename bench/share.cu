/*
 * share.cu - what one block of PE 0 waits for the proxy while many others of it use the same one: each puts 8 bytes and waits
 * until they are complete, again and again. First the one alone, then the many alone, then all together; five times; prints
 * medians as one JSON object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <tern/device.h>

#define ROUNDS 2000 /* of the one */
#define TURNS 5

/* Local to PE 0. */
struct share {
    uint32_t ns[ROUNDS];
    unsigned long long done, begin, end; /* puts of the many, and when the first began and the last ended */
    unsigned over;                       /* the one has finished */
};

static __device__ void put_quiet(tern_ctx_t ctx, uint64_t *word, uint64_t value)
{
    tern_uint64_p(ctx, word, value, 1);
    (void)tern_quiet(ctx);
}

/* Block 0 is the one, if there is one; the others go on until it has ended, or for `rounds` of their own. */
static __global__ void share_kernel(tern_ctx_t ctx, uint64_t *words, struct share *s, int one, int rounds)
{
    uint64_t *word = words + 16 * blockIdx.x;
    if (one && blockIdx.x == 0) {
        for (int i = 0; i < ROUNDS; i++) {
            uint64_t begin = tern_prim_clock_ns();
            put_quiet(ctx, word, (uint64_t)i);
            s->ns[i] = (uint32_t)(tern_prim_clock_ns() - begin);
        }
        atomicExch(&s->over, 1u);
        return;
    }
    unsigned long long begin = tern_prim_clock_ns();
    int done = 0;
    while (rounds ? done < rounds : atomicAdd(&s->over, 0u) == 0) {
        put_quiet(ctx, word, (uint64_t)done++);
        tern_prim_pause();
    }
    atomicMin(&s->begin, begin);
    atomicMax(&s->end, (unsigned long long)tern_prim_clock_ns());
    atomicAdd(&s->done, (unsigned long long)done);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(double *values)
{
    qsort(values, TURNS, sizeof *values, by_value);
    return values[TURNS / 2];
}

/* One kernel: medians and 99th percentile of the one in us, puts of the many in a us. */
static bool run(tern_ctx_t ctx, uint64_t *words, struct share *dev, int one, int many, int rounds, double *p50, double *p99,
                double *rate)
{
    static struct share s;
    static double us[ROUNDS];
    s.done = s.end = s.over = 0;
    s.begin = ~0ull;
    if (cudaMemcpy(dev, &s, sizeof s, cudaMemcpyHostToDevice) != cudaSuccess ||
        tern_launch(share_kernel, dim3((unsigned)(one + many)), dim3(1), 0, NULL, ctx, words, dev, one, rounds) != TERN_OK ||
        cudaDeviceSynchronize() != cudaSuccess || cudaMemcpy(&s, dev, sizeof s, cudaMemcpyDeviceToHost) != cudaSuccess)
        return false;
    for (int i = 0; i < ROUNDS; i++)
        us[i] = s.ns[i] * 1e-3;
    qsort(us, ROUNDS, sizeof us[0], by_value);
    *p50 = us[ROUNDS / 2];
    *p99 = us[ROUNDS * 99 / 100];
    *rate = s.end > s.begin ? (double)s.done * 1e3 / (double)(s.end - s.begin) : 0;
    return tern_status() == TERN_OK;
}

static bool measure(tern_ctx_t ctx, int many)
{
    double lone[TURNS], lone99[TURNS], among[TURNS], among99[TURNS], alone[TURNS], beside[TURNS], unused, unused99;
    uint64_t *words = (uint64_t *)tern_calloc((size_t)(many + 1) * 16, sizeof *words);
    struct share *dev = NULL;
    bool right = words && cudaMalloc(&dev, sizeof *dev) == cudaSuccess;
    for (int i = 0; right && tern_my_pe() == 0 && i < TURNS; i++)
        right = run(ctx, words, dev, 1, 0, 0, &lone[i], &lone99[i], &unused) &&
                run(ctx, words, dev, 0, many, ROUNDS / 4, &unused, &unused99, &alone[i]) &&
                run(ctx, words, dev, 1, many, 0, &among[i], &among99[i], &beside[i]);
    right = right && tern_barrier_all() == TERN_OK;
    cudaFree(dev);
    if (!right || tern_my_pe() != 0)
        return right;
    double one = middle(lone), rate = middle(alone) * 1e3;
    printf("{\"blocks\":%d,\"lone_us\":%.2f,\"lone_p99_us\":%.2f,\"beside_us\":%.2f,\"beside_p99_us\":%.2f,\"kops_alone\":%.0f,"
           "\"kops_beside\":%.0f,", many, one, middle(lone99), middle(among), middle(among99), rate, middle(beside) * 1e3);
    printf("\"median_ratio\":%.2f,\"p99_ratio\":%.2f,\"rate_ratio\":%.2f}\n", among[TURNS / 2] / one, among99[TURNS / 2] / one,
           beside[TURNS / 2] * 1e3 / rate);
    return true;
}

int main(int argc, char **argv)
{
    int many = argc > 1 ? atoi(argv[1]) : 64;
    tern_ctx_t ctx;
    if (argc > 2 || many < 1) {
        fprintf(stderr, "usage: share [BLOCKS]   two PEs; blocks beside the one, 64 by default\n");
        return 2;
    }
    if (tern_init() != TERN_OK || tern_ctx(&ctx) != TERN_OK || tern_n_pes() < 2 || !measure(ctx, many)) {
        fprintf(stderr, "share: PE %d: %s\n", tern_my_pe(), *tern_last_error() ? tern_last_error() : "two PEs are needed");
        return 1;
    }
    return tern_finalize() == TERN_OK ? 0 : 1;
}
