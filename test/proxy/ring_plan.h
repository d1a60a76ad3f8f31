/*
 * ring_plan.h - what the kernels of ring.cu do: operation `seq` of thread `id` follows from its number, so that the
 * consumer knows what it must be.
 */
#ifndef TEST_PROXY_RING_PLAN_H
#define TEST_PROXY_RING_PLAN_H

#include <tern/device.h>

#define UNITS TERN_RING_LEAST
#define N_PES 5
#define ME 1
#define ROUNDS 8
#define OPS 4 /* of a thread in a round */
#define SEQS (ROUNDS * OPS)
#define ROW 64u /* bytes that an operation has for itself, here and at the target */
#define IDS_MAX 512
#define THREADS_MAX 128 /* of a block */
#define HEAP_BYTES (IDS_MAX * SEQS * ROW + IDS_MAX * ROUNDS * THREADS_MAX * 8ull)
#define REMOTE (1ull << 24)  /* offset of the rows there; here they begin at 0 */
#define SIGNALS (1ull << 26) /* offset of their signals */
#define GETS (1ull << 27)    /* offset of what iget takes */
#define SEGMENT 2 /* the registered buffer */
#define HELD_MS 3 /* how long answers are kept back, or a ring not served */
#define DEADLINE_S 100

/* Kinds of operations: X(name, entry, bytes, offset in the row, a REPLY behind it). */
/* clang-format off */
#define KIND_TABLE(X)                                                                                                  \
    X(p64, p64, 8, 0, 0) X(p32, p, 4, 4, 0) X(p16, p, 2, 2, 0) X(p8, p, 1, 3, 0) X(put_word, p, 4, 4, 0)                \
    X(put_s, put_s, 48, 0, 0) X(put_l, put_l, 33, 1, 0) X(put_buffer, put_l, 40, 0, 0)                                  \
    X(put_s_signal, put_s_sig, 32, 0, 0) X(put_l_signal, put_l_sig, 31, 3, 0)                                           \
    X(put_wait, put_s, 64, 0, 1) X(put_signal_wait, put_l_sig, 47, 5, 1) X(get_wait, get_s, 48, 0, 1)                   \
    X(get_nbi, get_l, 33, 2, 0) X(signal_set, sig_set, 8, 0, 0) X(signal_add, sig_add, 8, 0, 0)                         \
    X(g64, g, 8, 0, 0) X(g16, g, 2, 2, 0) X(xor64, amo, 8, 0, 0) X(fetch_add32, amo, 4, 4, 0) X(cas64, amo, 8, 0, 0)    \
    X(near_add, amo, 8, 0, 0) X(hole, p64, 8, 0, 0)
/* clang-format on */
enum {
#define KIND_ENUM(name, entry, bytes, at, reply) KIND_##name,
    KIND_TABLE(KIND_ENUM)
#undef KIND_ENUM
        KIND_COUNT,
    KIND_ANY = KIND_COUNT
};

/* What operation `seq` of thread `id` is: both sides know it from its number. */
struct plan {
    int kind, pe;
    uint64_t value;
};

TERN_DEV_HOST uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

TERN_DEV_HOST struct plan plan_of(uint32_t seed, unsigned id, unsigned seq, int only)
{
    uint64_t h = mix((uint64_t)seed << 32 ^ (uint64_t)id * SEQS ^ (uint64_t)seq << 20);
    struct plan plan = {only == KIND_ANY ? (int)(h % KIND_COUNT) : only,
                        (ME + 1 + (int)(h >> 8 & 0xff) % (N_PES - 1)) % N_PES, mix(h)};
    if (plan.kind == KIND_near_add)
        plan.pe = ME;
    return plan;
}

TERN_DEV_HOST uint64_t row_of(unsigned id, unsigned seq)
{
    return ((uint64_t)id * SEQS + seq) * ROW;
}

/* What a block's iget of a round gets: 8 bytes a thread, behind the rows here, behind GETS there. */
TERN_DEV_HOST uint64_t gets_of(unsigned block, unsigned round)
{
    return ((uint64_t)block * ROUNDS + round) * THREADS_MAX * 8;
}

TERN_DEV_HOST int gets_pe(unsigned block, unsigned round)
{
    return (ME + 1 + (int)(block + round) % (N_PES - 1)) % N_PES;
}

#endif
