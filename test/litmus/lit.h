/*
 * lit.h - what the litmus tests share. A test is played by parties: PEs (each its kernel's block), or the blocks of one PE.
 * Either way party p has a region of memory of its own, which the others reach by symmetric operations only.
 */
#ifndef TEST_LITMUS_LIT_H
#define TEST_LITMUS_LIT_H

#include <tern/device.h>

#define LIT_THREADS 64                          /* of a block, unless --threads says another number */
#define LIT_THREADS_MAX 128
#define LIT_ROW (LIT_THREADS_MAX * 16)          /* a party's data in one iteration: 16 bytes a thread */
#define LIT_PARTIES_MAX 16
#define LIT_BLOCKS_MAX 256                      /* of a PE's grid */
#define LIT_STAGE 8192                          /* shared memory lent to copies, where a test lends some */

/* A party's region. */
struct lit_region {
    uint64_t flag[LIT_PARTIES_MAX][8];          /* flag of party q: [q][0], on a line of its own */
    uint64_t ack[LIT_PARTIES_MAX][8];
    uint64_t lane_flag[LIT_THREADS_MAX];        /* a flag for each thread of the sender */
    uint64_t sum[2][8];                         /* by parity of the iteration */
    uint32_t word32[LIT_PARTIES_MAX][16];
    uint64_t count[8], locked[8], grid[8], chain[8];
    uint32_t ticket[LIT_PARTIES_MAX * LIT_THREADS_MAX];
    char data[LIT_PARTIES_MAX][LIT_ROW] __attribute__((aligned(128)));  /* row of party q */
    char row[LIT_ROW] __attribute__((aligned(128)));                    /* own source of puts, and of others' gets */
    char got[LIT_ROW] __attribute__((aligned(128)));                    /* own destination of gets */
    char data2[LIT_PARTIES_MAX][LIT_ROW] __attribute__((aligned(128))); /* the same of a PE's second block */
    char row2[LIT_ROW] __attribute__((aligned(128)));
};

/* One party's view, in registers. */
struct lit {
    tern_ctx_t ctx;             /* with a deadline */
    struct lit_region *regions; /* PEs as parties: one, symmetric. Blocks as parties: one for each, of the own PE */
    int me, n;                  /* party, parties */
    int blocks;                 /* parties are blocks */
    int second;                 /* LIT_GRID: the PE's second block */
    uint32_t it;                /* iteration, from 1 */
    uint32_t seed;
    uint32_t bad;               /* wrong words seen by this thread in this iteration */
    tern_status_t status;       /* equal in all threads of the block */
};

/* What the host gets back from each party. */
struct lit_result {
    uint32_t bad, first;        /* wrong words, first iteration with one */
    uint32_t status, status_it; /* a wait that failed, and when */
};

TERN_DEV struct lit_region *lit_mine(const struct lit *p)
{
    return p->regions + (p->blocks ? p->me : 0);
}

/* Region of party q, as symmetric address; it is at PE lit_pe(p, q). */
TERN_DEV struct lit_region *lit_of(const struct lit *p, int q)
{
    return p->regions + (p->blocks ? q : 0);
}

TERN_DEV int lit_pe(const struct lit *p, int q)
{
    return p->blocks ? p->ctx.my_pe : q;
}

TERN_DEV int lit_next(const struct lit *p, int step)
{
    return (p->me + step) % p->n;
}

TERN_DEV int lit_before(const struct lit *p, int step)
{
    return (p->me + step * (p->n - 1)) % p->n;
}

TERN_DEV uint32_t lit_value(uint32_t it, int party, unsigned thread)
{
    return it * 2654435761u ^ (uint32_t)party << 24 ^ thread << 8;
}

/* The part of another thread than the calling one: a missing barrier shows. */
TERN_DEV unsigned lit_other(void)
{
    return blockDim.x - 1 - threadIdx.x;
}

/* Thread `t`'s 16 bytes of the own row, by ordinary stores. */
TERN_DEV void lit_fill_at(const struct lit *p, char *row, unsigned t)
{
    uint32_t *words = (uint32_t *)row + 4 * t, v = lit_value(p->it, p->me, t);
    for (int i = 0; i < 4; i++)
        words[i] = v + (uint32_t)i;
}

TERN_DEV void lit_fill(const struct lit *p, char *row)
{
    lit_fill_at(p, row, threadIdx.x);
}

/* For calls of a block: the part that another thread is going to copy. */
TERN_DEV void lit_fill_other(const struct lit *p, char *row)
{
    lit_fill_at(p, row, lit_other());
}

/* Thread `t`'s part of a row must be what party q wrote in iteration `it`; read by ordinary loads. */
TERN_DEV void lit_check_at(struct lit *p, const char *row, int q, unsigned t)
{
    const uint32_t *words = (const uint32_t *)row + 4 * t;
    uint32_t v = lit_value(p->it, q, t);
    for (int i = 0; i < 4; i++)
        p->bad += words[i] != v + (uint32_t)i;
}

TERN_DEV void lit_check(struct lit *p, const char *row, int q)
{
    lit_check_at(p, row, q, lit_other());
}

/* A random number of turns of nothing, so that parties meet in all orders. */
TERN_DEV void lit_jitter(const struct lit *p, uint32_t where)
{
    if (threadIdx.x)
        return;
    uint32_t x = (p->seed ^ p->it * 747796405u ^ (uint32_t)p->me * 2891336453u ^ where * 277803737u) * 2246822519u;
    x ^= x >> 15;
    uint64_t end = tern_prim_clock_ns() + (x % 4 ? x % 1024 : 0);
    while (tern_prim_clock_ns() < end)
        tern_prim_pause();
}

/* A status that one thread found becomes the block's; the first failure stays. */
TERN_DEV void lit_status(struct lit *p, tern_status_t status)
{
    if (__syncthreads_or(status == TERN_ERR_TIMEOUT))
        status = TERN_ERR_TIMEOUT;
    else if (__syncthreads_or(status != TERN_OK))
        status = TERN_ERR_ABORTED;
    if (p->status == TERN_OK)
        p->status = status;
}

/* Thread 0 waits for a flag of the own region, then the block may go on. */
TERN_DEV void lit_await(struct lit *p, uint64_t *flag, uint64_t value)
{
    tern_status_t status = TERN_OK;
    if (p->status != TERN_OK)
        return;
    if (threadIdx.x == 0)
        status = tern_signal_wait_until(p->ctx, flag, TERN_CMP_GE, value);
    lit_status(p, status);
}

/*
 * End of an iteration between a sender and a receiver: the receiver is done with the data of `from`, the sender waits for
 * that of `to`. Ordered by fences of its own.
 */
TERN_DEV void lit_turn(struct lit *p, int from, int to)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        tern_prim_fence_sys();
        if (p->ctx.flags & TERN_CTX_PROXY)
            tern_fence(p->ctx);
        tern_signal_op(p->ctx, &lit_of(p, from)->ack[p->me][0], p->it, TERN_SIGNAL_SET, lit_pe(p, from));
    }
    lit_await(p, &lit_mine(p)->ack[to][0], p->it);
}

/* The same among all parties; `turn` grows from call to call. */
TERN_DEV void lit_turn_all(struct lit *p, uint64_t turn)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        tern_prim_fence_sys();
        if (p->ctx.flags & TERN_CTX_PROXY)
            tern_fence(p->ctx); /* behind the turn before, whose value this one replaces */
        for (int q = 0; q < p->n; q++)
            tern_signal_op(p->ctx, &lit_of(p, q)->ack[p->me][0], turn, TERN_SIGNAL_SET, lit_pe(p, q));
    }
    for (int q = 0; q < p->n; q++)
        lit_await(p, &lit_mine(p)->ack[q][0], turn);
}

#endif
