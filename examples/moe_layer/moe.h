/*
 * moe.h - what the parts of the example share: the layer's shape, its buffers, the random numbers that host and device
 * must agree on, and the calls between the files:
 *   main.c       life of the run, results      layer.cu      embedding, gate, SwiGLU experts, device memory
 *   options.c    command line                  exchange.cu   dispatch and combine: the communication
 *   text.c       files to tokens               reference.c   the same layer on the host, and all checks
 */
#ifndef MOE_H
#define MOE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tern/tern.h>

#ifdef __cplusplus /* the .cu files */
#define MOE_BOTH static inline __host__ __device__
extern "C" {
#else
#define MOE_BOTH static inline
#endif

#define MOE_MAX_TOPK 16
#define MOE_MAX_EXPERTS 4096
#define MOE_MAX_HIDDEN 4096
#define MOE_THREADS 128 /* of every block */
#define MOE_MAX_BLOCKS 64

enum { MOE_FP32, MOE_BF16 };
enum { MOE_FAULT_NONE, MOE_FAULT_DROP, MOE_FAULT_FLIP };
enum { MOE_DISPATCH, MOE_COMBINE, MOE_PHASES };
enum { MOE_STREAM_GATE = 1, MOE_STREAM_POSITION, MOE_STREAM_WEIGHTS }; /* of random numbers */

/* The shape of the layer and this PE's part of it; equal on host and device, passed to kernels by value. */
struct moe_layer {
    int pe, n_pes;
    int tokens, hidden, width, experts, topk; /* of the whole layer; width: of the hidden part of an expert */
    int dtype;                                /* of tokens, weights and results: MOE_FP32, MOE_BF16 */
    int fault;                                /* what to spoil on purpose */
    int blocks;                               /* of the kernels that wait for other PEs: all must be resident at once */
    int max_tokens, max_experts;              /* the largest share of any PE */
    int first_token, my_tokens, first_expert, my_experts;
    uint32_t value_bytes, row_bytes;          /* `hidden` values; the same behind its head */
    uint32_t timeout_ms;                      /* bound of each wait for another PE */
    uint64_t seed;
    float gate_scale, in_scale, out_scale;    /* of the random weights */
};

/*
 * A token on the wire: this head, then its `hidden` values. Every PE that owns one of the token's experts gets one copy,
 * however many of them it owns, and finds in the head which of its experts to run.
 */
struct moe_head {
    int32_t token;                /* number among the tokens of its source PE */
    int32_t pad[3];
    int16_t expert[MOE_MAX_TOPK]; /* in order of the gate's preference */
};

/* The first failure of a device wait. */
struct moe_trouble {
    uint32_t claimed;
    int32_t status; /* tern_status_t */
    int32_t phase, pe, row;
};

/*
 * Device memory. "Symmetric" parts are written by other PEs; flags hold the number of the forward pass (the epoch) whose
 * data they announce, so nothing has to be cleared between passes.
 */
struct moe_buffers {
    /* symmetric, at the expert's PE */
    char *in_rows;      /* [source PE][max_tokens] rows */
    uint64_t *in_flags; /* [source PE][max_tokens] epoch of the row */
    uint64_t *in_count; /* [source PE] epoch << 32 | rows that come */
    /* symmetric, at the token's PE */
    char *back_rows;      /* [max_tokens][topk] results of experts, unreduced */
    uint64_t *back_flags; /* [max_tokens][topk] */
    /* on the heap because they are sources of puts */
    char *out_rows; /* [max_tokens + 1] rows of the own tokens; the last one is for the spoiled copy */
    char *results;  /* [source PE][max_tokens][topk] results of the own experts */
    /* local */
    uint64_t *words;    /* [my_tokens] hash of each token */
    float *gate;        /* [experts][hidden] weights of the gate, the same on every PE */
    float *gate_weight; /* [my_tokens][topk] softmax over the chosen experts */
    int32_t *list;      /* [destination PE][max_tokens] tokens that go there */
    int32_t *list_count;
    int32_t *pairs; /* [my_experts][tokens] what each expert has to do: row * topk + k */
    int32_t *pair_count;
    void *weights;              /* [my_experts][3][hidden * width] */
    char *output;               /* [my_tokens] `hidden` values each */
    unsigned long long *sent;   /* [destination PE] rows sent since the start */
    uint64_t *clocks;           /* [MOE_PHASES][MOE_MAX_BLOCKS][2] begin and end of each block, ns */
    struct moe_trouble *trouble;
};

/* ---- shares: PE p has the tokens (experts) number n * p / n_pes and those up to its successor's first -------------------- */

MOE_BOTH int moe_share_first(int n, int pe, int n_pes)
{
    return (int)((int64_t)n * pe / n_pes);
}

MOE_BOTH int moe_owner(const struct moe_layer *m, int expert)
{
    return (int)(((int64_t)(expert + 1) * m->n_pes - 1) / m->experts);
}

/* ---- random numbers ---------------------------------------------------------------------------------------------------- */

MOE_BOTH uint64_t moe_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

MOE_BOTH uint64_t moe_key(uint64_t seed, uint64_t stream, uint64_t index)
{
    return moe_mix(moe_mix(moe_mix(seed) + stream) + index);
}

/* A multiple of 2^-23 in [-1, 1): exact in a float, so that host and device get the same bits from what follows. */
MOE_BOTH float moe_random(uint64_t key, uint64_t index)
{
    return (float)((int32_t)(moe_mix(key + index) >> 40) - (1 << 23)) * (1.0f / (1 << 23));
}

/* Value `j` of a word's embedding at a place in the text: mostly the word, a little of the place. One rounding. */
MOE_BOTH float moe_embedding(uint64_t word, uint64_t position_key, int j)
{
    return moe_random(word, (uint64_t)j) + 0.25f * moe_random(position_key, (uint64_t)j);
}

/* ---- values: fp32, or bf16 kept in 16 bits and computed in fp32 -------------------------------------------------------------- */

MOE_BOTH uint32_t moe_float_bits(float value)
{
    union {
        float f;
        uint32_t u;
    } bits;
    bits.f = value;
    return bits.u;
}

MOE_BOTH float moe_bits_float(uint32_t u)
{
    union {
        uint32_t u;
        float f;
    } bits;
    bits.u = u;
    return bits.f;
}

/* Round to nearest even, as the hardware does; the layer has no NaN of its own. */
MOE_BOTH uint16_t moe_to_bf16(float value)
{
    uint32_t u = moe_float_bits(value);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

MOE_BOTH float moe_load(const void *values, size_t i, int dtype)
{
    if (dtype == MOE_BF16)
        return moe_bits_float((uint32_t)((const uint16_t *)values)[i] << 16);
    return ((const float *)values)[i];
}

MOE_BOTH void moe_store(void *values, size_t i, float value, int dtype)
{
    if (dtype == MOE_BF16)
        ((uint16_t *)values)[i] = moe_to_bf16(value);
    else
        ((float *)values)[i] = value;
}

/* Weight of the gate for an expert and value `j` of the token. */
MOE_BOTH float moe_gate_weight(const struct moe_layer *m, int expert, int j)
{
    return moe_random(moe_key(m->seed, MOE_STREAM_GATE, (uint64_t)expert), (uint64_t)j) * m->gate_scale;
}

/* Weight `i` of matrix `matrix` of an expert: 0 gate and 1 up, [hidden][width]; 2 down, [width][hidden]. */
MOE_BOTH float moe_weight(const struct moe_layer *m, int expert, int matrix, size_t i)
{
    uint64_t key = moe_key(m->seed, MOE_STREAM_WEIGHTS, (uint64_t)expert * 3 + (uint64_t)matrix);
    return moe_random(key, i) * (matrix == 2 ? m->out_scale : m->in_scale);
}

MOE_BOTH struct moe_head *moe_row(char *rows, size_t i, const struct moe_layer *m)
{
    return (struct moe_head *)(rows + i * m->row_bytes);
}

/* ---- layer.cu ------------------------------------------------------------------------------------------------------------ */

/* Device memory of this PE alone, zeroed; NULL on failure. Copies end before they return. */
void *moe_device_alloc(size_t bytes);
void moe_device_free(void *ptr);
bool moe_upload(void *dst, const void *src, size_t bytes);
bool moe_download(void *dst, const void *src, size_t bytes);
bool moe_device_sync(void);

/* Each launch returns at once; the kernels run in the order of the calls. */
tern_status_t moe_launch_weights(const struct moe_layer *m, const struct moe_buffers *b);
tern_status_t moe_launch_gate(const struct moe_layer *m, const struct moe_buffers *b);
tern_status_t moe_launch_experts(const struct moe_layer *m, const struct moe_buffers *b);

/* ---- exchange.cu ----------------------------------------------------------------------------------------------------------- */

tern_status_t moe_launch_plan(const struct moe_layer *m, const struct moe_buffers *b);
tern_status_t moe_launch_dispatch(const tern_ctx_t *ctx, const struct moe_layer *m, const struct moe_buffers *b,
                                  uint64_t epoch);
tern_status_t moe_launch_index(const struct moe_layer *m, const struct moe_buffers *b);
tern_status_t moe_launch_combine(const tern_ctx_t *ctx, const struct moe_layer *m, const struct moe_buffers *b,
                                 uint64_t epoch);

/* ---- options.c -------------------------------------------------------------------------------------------------------------- */

struct moe_options {
    long tokens, hidden, experts, topk, iters, timeout_ms;
    uint64_t seed;
    int dtype, fault;
    bool json;
    char **files; /* of the text; free()d by the caller */
    int file_count;
};
/* -1: go on; else the exit status: 0 after --help, 2 after a message about what is wrong. */
int moe_options_parse(struct moe_options *o, int argc, char **argv);

/* ---- text.c ---------------------------------------------------------------------------------------------------------------- */

struct moe_text {
    uint64_t *words; /* hash of each token */
    size_t count;
    char name[256];  /* of the first file */
};
/* Cut the files into tokens; without files the project's README. Prints why it cannot, and returns false. */
bool moe_text_read(struct moe_text *text, char *const *files, int count);
void moe_text_free(struct moe_text *text);

/* ---- reference.c -------------------------------------------------------------------------------------------------------------- */

/* What one PE found; the arrays belong to the caller. */
struct moe_verdict {
    uint64_t wrong;          /* checks that failed, the size of the largest error left out */
    double error, largest;   /* largest absolute error, largest absolute value of the reference */
    uint64_t *expert_tokens; /* [experts] of the own tokens */
    uint64_t *routed, *sent; /* [destination PE] rows by the routing, rows sent a pass */
};
/* Check the last of `passes` forward passes. `words`: hashes of all tokens of the layer. False: no memory, no device. */
bool moe_check(const struct moe_layer *m, const struct moe_buffers *b, const uint64_t *words, uint64_t passes,
               struct moe_verdict *verdict);

#ifdef __cplusplus
}
#endif
#endif
