/* two_objects.cu - uses the kernels of two shared objects and one of its own on the same symmetric word. */
#include <stdio.h>
#include <tern/device.h>

extern "C" int add_first(tern_ctx_t ctx, uint64_t *word, uint64_t value);
extern "C" int add_second(tern_ctx_t ctx, uint64_t *word, uint64_t value);

__global__ void read_kernel(tern_ctx_t ctx, uint64_t *word, uint64_t *out)
{
    *out = tern_signal_fetch(ctx, word);
}

int main(void)
{
    tern_ctx_t ctx;
    uint64_t got = 0;
    tern_status_t status = tern_init();

    if (status == TERN_ERR_NO_DEVICE)
        return printf("skipped: no GPU: %s\n", tern_last_error()), 77;
    if (status != TERN_OK || tern_ctx(&ctx) != TERN_OK)
        return fprintf(stderr, "%s\n", tern_last_error()), 1;
    uint64_t *words = (uint64_t *)tern_calloc(2, sizeof *words);
    if (!words || add_first(ctx, words, 3) || add_second(ctx, words, 40))
        return fprintf(stderr, "%s\n", tern_last_error()), 1;
    read_kernel<<<1, 1>>>(ctx, words, words + 1);
    cudaMemcpy(&got, words + 1, sizeof got, cudaMemcpyDeviceToHost);
    printf("3 and 40 make %llu\n", (unsigned long long)got);
    return tern_finalize() != TERN_OK || got != 43;
}
