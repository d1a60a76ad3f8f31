/*
 * layer.cu - the arithmetic of the layer on one PE: embedding and gate, the SwiGLU experts, their weights; and device
 * memory for the host part. Nothing here communicates.
 */
#include <tern/device.h>

#include "moe.h"

#define TILE 8   /* tokens that an expert works on at once: each weight is loaded once for all of them */
#define CHUNK 64 /* products that are summed before they are added to the whole: long sums in fp32 stay accurate */

/* ---- weights: only the owner of an expert has them ---------------------------------------------------------------------- */

static __global__ void moe_weights_kernel(struct moe_layer m, struct moe_buffers b)
{
    size_t matrix = (size_t)m.hidden * (size_t)m.width, step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < 3 * matrix * (size_t)m.my_experts; i += step) {
        int expert = (int)(i / (3 * matrix));
        int which = (int)(i % (3 * matrix) / matrix);
        float w = moe_weight(&m, m.first_expert + expert, which, i % matrix);
        moe_store(b.weights, i, w, m.dtype);
    }
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < (size_t)m.experts * (size_t)m.hidden; i += step)
        b.gate[i] = moe_gate_weight(&m, (int)(i / (size_t)m.hidden), (int)(i % (size_t)m.hidden));
}

/* ---- the one product that all of it is made of ------------------------------------------------------------------------- */

/* sum[r] += values[i][r] * weights[at + i * stride], i < n, for the first `rows` of the tile's columns. */
static __device__ void moe_dot(const void *weights, size_t at, size_t stride, int dtype, const float *values, int n, int rows,
                               int tile, float *sum)
{
    for (int first = 0; first < n; first += CHUNK) {
        float part[TILE] = {0};
        int end = first + CHUNK < n ? first + CHUNK : n;
        for (int i = first; i < end; i++) {
            float w = moe_load(weights, at + (size_t)i * stride, dtype);
            for (int r = 0; r < TILE; r++) {
                if (r < rows)
                    part[r] += values[i * tile + r] * w;
            }
        }
        for (int r = 0; r < TILE; r++)
            sum[r] += part[r];
    }
}

/* ---- embedding and gate -------------------------------------------------------------------------------------------------- */

/* Takes the largest logit `topk` times: experts into the token's head, softmax over them into `weight`. One thread. */
static __device__ void moe_choose(const struct moe_layer *m, float *logits, struct moe_head *head, float *weight)
{
    float chosen[MOE_MAX_TOPK], sum = 0;

    for (int k = 0; k < m->topk; k++) {
        int best = -1;
        for (int e = 0; e < m->experts; e++) {
            if (logits[e] > -INFINITY && (best < 0 || logits[e] > logits[best]))
                best = e;
        }
        head->expert[k] = (int16_t)best;
        chosen[k] = logits[best];
        logits[best] = -INFINITY;
    }
    for (int k = 0; k < m->topk; k++)
        sum += expf(chosen[k] - chosen[0]);
    for (int k = 0; k < m->topk; k++)
        weight[k] = expf(chosen[k] - chosen[0]) / sum;
}

/* A block takes a token: embeds it into its row, and lets the gate choose its experts. */
static __global__ void moe_gate_kernel(struct moe_layer m, struct moe_buffers b)
{
    extern __shared__ float gate_shared[]; /* the token, then a logit for each expert */
    float *x = gate_shared, *logits = gate_shared + m.hidden;

    for (int t = (int)blockIdx.x; t < m.my_tokens; t += (int)gridDim.x) {
        struct moe_head *head = moe_row(b.out_rows, (size_t)t, &m);
        uint64_t position = moe_key(m.seed, MOE_STREAM_POSITION, (uint64_t)(m.first_token + t));

        for (int j = (int)threadIdx.x; j < m.hidden; j += (int)blockDim.x) {
            moe_store(head + 1, (size_t)j, moe_embedding(b.words[t], position, j), m.dtype);
            x[j] = moe_load(head + 1, (size_t)j, m.dtype);
        }
        __syncthreads();
        for (int e = (int)threadIdx.x; e < m.experts; e += (int)blockDim.x) {
            float logit[TILE] = {0};
            moe_dot(b.gate, (size_t)e * (size_t)m.hidden, 1, MOE_FP32, x, m.hidden, 1, 1, logit);
            logits[e] = logit[0];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            head->token = t;
            moe_choose(&m, logits, head, b.gate_weight + (size_t)t * (size_t)m.topk);
        }
        __syncthreads();
    }
}

/* ---- experts: down(silu(gate(x)) * up(x)) ----------------------------------------------------------------------------------- */

/* x[j][r]: the values of `rows` tokens side by side, so that a weight meets them all. */
static __device__ void moe_gather_tile(const struct moe_layer *m, const struct moe_buffers *b, const int32_t *pairs,
                                       int rows, int tile, float *x)
{
    for (int r = 0; r < rows; r++) {
        const struct moe_head *head = moe_row(b->in_rows, (size_t)(pairs[r] / m->topk), m);
        for (int j = (int)threadIdx.x; j < m->hidden; j += (int)blockDim.x)
            x[j * tile + r] = moe_load(head + 1, (size_t)j, m->dtype);
    }
}

/* h[f][r] = silu(gate) * up: each thread has its columns f of both matrices. */
static __device__ void moe_tile_up(const struct moe_layer *m, const char *weights, int rows, int tile, const float *x,
                                   float *h)
{
    size_t width = (size_t)m->width, matrix = (size_t)m->hidden * width;

    for (int f = (int)threadIdx.x; f < m->width; f += (int)blockDim.x) {
        float gate[TILE] = {0}, up[TILE] = {0};
        moe_dot(weights, (size_t)f, width, m->dtype, x, m->hidden, rows, tile, gate);
        moe_dot(weights, matrix + (size_t)f, width, m->dtype, x, m->hidden, rows, tile, up);
        for (int r = 0; r < TILE; r++) {
            if (r < rows)
                h[f * tile + r] = gate[r] / (1.0f + expf(-gate[r])) * up[r];
        }
    }
}

static __device__ void moe_tile_down(const struct moe_layer *m, const struct moe_buffers *b, const char *weights,
                                     const int32_t *pairs, int rows, int tile, const float *h)
{
    size_t hidden = (size_t)m->hidden, down = 2 * hidden * (size_t)m->width;

    for (int j = (int)threadIdx.x; j < m->hidden; j += (int)blockDim.x) {
        float y[TILE] = {0};
        moe_dot(weights, down + (size_t)j, hidden, m->dtype, h, m->width, rows, tile, y);
        for (int r = 0; r < TILE; r++) {
            if (r < rows)
                moe_store(b->results + (size_t)pairs[r] * m->value_bytes, (size_t)j, y[r], m->dtype);
        }
    }
}

/* The tiles of all experts are dealt out to the blocks in turn. */
static __global__ void moe_experts_kernel(struct moe_layer m, struct moe_buffers b, int tile)
{
    extern __shared__ float experts_shared[];
    float *x = experts_shared, *h = experts_shared + m.hidden * tile;
    size_t expert_bytes = 3 * (size_t)m.width * m.value_bytes;
    int number = 0;

    for (int e = 0; e < m.my_experts; e++) {
        for (int first = 0; first < b.pair_count[e]; first += tile, number++) {
            if (number % (int)gridDim.x != (int)blockIdx.x)
                continue;
            const int32_t *pairs = b.pairs + (size_t)e * (size_t)m.tokens + (size_t)first;
            const char *weights = (const char *)b.weights + (size_t)e * expert_bytes;
            int rows = b.pair_count[e] - first < tile ? b.pair_count[e] - first : tile;
            moe_gather_tile(&m, &b, pairs, rows, tile, x);
            __syncthreads();
            moe_tile_up(&m, weights, rows, tile, x, h);
            __syncthreads();
            moe_tile_down(&m, &b, weights, pairs, rows, tile, h);
            __syncthreads();
        }
    }
}

/* ---- called by the host part ------------------------------------------------------------------------------------------------- */

tern_status_t moe_launch_weights(const struct moe_layer *m, const struct moe_buffers *b)
{
    return tern_launch(moe_weights_kernel, dim3(m->blocks), dim3(MOE_THREADS), 0, NULL, *m, *b);
}

tern_status_t moe_launch_gate(const struct moe_layer *m, const struct moe_buffers *b)
{
    size_t shared = (size_t)(m->hidden + m->experts) * sizeof(float);
    return tern_launch(moe_gate_kernel, dim3(m->blocks), dim3(MOE_THREADS), shared, NULL, *m, *b);
}

tern_status_t moe_launch_experts(const struct moe_layer *m, const struct moe_buffers *b)
{
    int tile = MOE_MAX_HIDDEN / m->hidden < TILE ? MOE_MAX_HIDDEN / m->hidden : TILE; /* 48 KiB of shared memory */
    size_t shared = (size_t)(m->hidden + m->width) * (size_t)tile * sizeof(float);
    return tern_launch(moe_experts_kernel, dim3(4 * m->blocks), dim3(MOE_THREADS), shared, NULL, *m, *b, tile);
}

void *moe_device_alloc(size_t bytes)
{
    void *ptr = NULL;
    if (cudaMalloc(&ptr, bytes ? bytes : 16) != cudaSuccess)
        return NULL;
    if (cudaMemset(ptr, 0, bytes ? bytes : 16) != cudaSuccess) {
        cudaFree(ptr);
        return NULL;
    }
    return ptr;
}

void moe_device_free(void *ptr)
{
    cudaFree(ptr);
}

bool moe_upload(void *dst, const void *src, size_t bytes)
{
    return bytes == 0 || cudaMemcpy(dst, src, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
}

bool moe_download(void *dst, const void *src, size_t bytes)
{
    return bytes == 0 || cudaMemcpy(dst, src, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

bool moe_device_sync(void)
{
    return cudaDeviceSynchronize() == cudaSuccess;
}
