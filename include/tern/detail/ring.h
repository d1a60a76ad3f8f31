/*
 * tern/detail/ring.h - rings: how kernels hand operations to the proxy. Layout of ring, entry and reply slot, and the
 * encoding of entries; shared by kernels, proxy threads and tests, hence the static asserts. Private.
 *
 * A ring has units of 16 bytes in pinned host memory. Whoever pushes reserves 1 to 4 units by a ticket (an atomic add to
 * `head` in device memory) and stores both 8-byte words of each. Bit 63 of every word is the parity of the lap (memory
 * starts as 0, the first lap writes 1), so each word tells by itself whether it has arrived. An entry may wrap.
 */
#ifndef TERN_DETAIL_RING_H
#define TERN_DETAIL_RING_H

#include <tern/detail/state.h>

#define TERN_RING_LEAST 256u    /* units: a power of two */
#define TERN_RING_UNITS 1024u
#define TERN_RING_REPLIES 64u   /* reply slots of a ring; the last 8 are for g, get and atomics only */
#define TERN_RING_REPLIES_ANY 56u
#define TERN_PE_ALL 0xffffu     /* QUIET: all PEs */

/* Device half of a ring. */
struct tern_ring_dev {
    uint64_t head;              /* next ticket */
    uint32_t taken, pad1;       /* cache of the published word's low half, never ahead of it; a ring holds far less */
    uint64_t slots;             /* reply slots that are free, bit by bit */
    uint32_t reading, pad0;     /* 1: somebody reads published counts, of this ring and some behind it, for their caches */
    uint64_t pad[12];
};

/* An answer: value first, then `word` with release. The word starts as all ones. */
struct tern_reply {
    uint64_t value;
    uint64_t word;              /* [63:56] status, [55:0] ticket of the entry that asked */
    uint64_t pad[2];
};
#define TERN_REPLY_WORD(status, ticket) ((uint64_t)(status) << 56 | ((ticket) & TERN_REPLY_TICKET))
#define TERN_REPLY_TICKET 0x00ffffffffffffffull
#define TERN_REPLY_NONE (~0ull)

/* Host half of a ring: this, then the units. */
struct tern_ring_host {
    uint64_t taken;             /* units that the proxy has taken; stored with release after every visit that took some */
    uint64_t pad[15];
    struct tern_reply replies[TERN_RING_REPLIES];
};
#define TERN_RING_HOST_BYTES(units) (sizeof(struct tern_ring_host) + 16ull * (units))

/* Rings whose counts a fence loads together. Behind the last ring, both halves have memory for as many. */
#define TERN_RINGS_AT_ONCE 8u

/* Ring of a channel and a proxy thread: rings of one thread follow each other. */
#define TERN_RING_INDEX(channels, thread, channel) ((thread) * (channels) + (channel))

/* Registered local memory, in device memory: segment n of an entry is buffer n - 1. */
#define TERN_MAX_BUFFERS 256u
struct tern_buffer_dev {
    uint64_t base, bytes;       /* 0 bytes: free */
};

/* ---- entries --------------------------------------------------------------------------------------------------------------- */

/* Operations: X(name, units). First unit, W0: [62:58] op, [57:56] units - 1, [55:52] flags, [51:36] PE, [35:0] A. */
#define TERN_ENTRY_TABLE(X)                                                                                            \
    X(none, 0) X(nop, 1) X(put_s, 1) X(get_s, 1) X(put_l, 2) X(get_l, 2) X(put_s_sig, 2) X(put_l_sig, 3) X(p64, 1)     \
    X(p, 1) X(sig_set, 1) X(sig_add, 1) X(amo, 2) X(g, 1) X(fence, 1) X(quiet, 1) X(reply, 1)
enum {
#define TERN_ENTRY_ENUM(name, units) TERN_ENTRY_##name,
    TERN_ENTRY_TABLE(TERN_ENTRY_ENUM)
#undef TERN_ENTRY_ENUM
    TERN_ENTRY_COUNT
};
#define TERN_ENTRY_MOST 4u /* units */

/* Operators of AMO entries; floats by type. */
#define TERN_AMO_TABLE(X) X(fetch) X(set) X(swap) X(cas) X(add) X(and) X(or) X(xor) X(add_float)
enum {
#define TERN_AMO_ENUM(name) TERN_AMO_##name,
    TERN_AMO_TABLE(TERN_AMO_ENUM)
#undef TERN_AMO_ENUM
    TERN_AMO_COUNT
};

typedef struct tern_unit {
    uint64_t w[2];
} tern_unit_t;

#define TERN_UNIT_PARITY (1ull << 63)
#define TERN_UNIT_LOW63 (~TERN_UNIT_PARITY)
/* Bit 63 of the units that ticket `ticket` stands for. */
#define TERN_UNIT_LAP(ticket, units) ((((ticket) / (units)) & 1) ? 0ull : TERN_UNIT_PARITY)

#define TERN_A_BITS 36
#define TERN_A_MASK ((1ull << TERN_A_BITS) - 1)
#define TERN_SHORT_BYTES (1ull << 27)  /* PUT_S, GET_S: below this, a multiple of 1; */
#define TERN_SHORT_OFFSET (1ull << 40) /* offsets below this, multiples of 16 */
#define TERN_LONG_BYTES (1ull << 36)   /* PUT_L, GET_L: below this */
#define TERN_LONG_OFFSET (1ull << 48)
#define TERN_WORD_OFFSET (1ull << 41)  /* P64, SIG_SET, SIG_ADD */

#if defined(__CUDACC__) || defined(__cplusplus)
#define TERN_RING_FN static __host__ __device__ __forceinline__
#else
#define TERN_RING_FN static inline
#endif

TERN_RING_FN uint64_t tern_entry_w0(unsigned op, unsigned units, unsigned flags, unsigned pe, uint64_t a)
{
    return (uint64_t)op << 58 | (uint64_t)(units - 1) << 56 | (uint64_t)flags << 52 | (uint64_t)pe << 36 | a;
}

/* PUT_S, GET_S and the first unit of PUT_S_SIG: W1 = [62:36] bytes, [35:0] local >> 4. */
TERN_RING_FN tern_unit_t tern_entry_short(unsigned op, unsigned units, unsigned pe, uint64_t remote, uint64_t local,
                                          uint64_t bytes)
{
    tern_unit_t u = {{tern_entry_w0(op, units, 0, pe, remote >> 4), bytes << 36 | local >> 4}};
    return u;
}

/* PUT_L, GET_L and the first two units of PUT_L_SIG. `segment`: 0 = span, else buffer + 1. */
TERN_RING_FN tern_unit_t tern_entry_long(unsigned op, unsigned units, unsigned pe, uint64_t remote, uint64_t bytes)
{
    tern_unit_t u = {{tern_entry_w0(op, units, 0, pe, bytes), remote}};
    return u;
}
TERN_RING_FN tern_unit_t tern_entry_local(unsigned segment, uint64_t local)
{
    tern_unit_t u = {{(uint64_t)segment << 48 | local, 0}};
    return u;
}

/* Last unit of PUT_*_SIG. */
TERN_RING_FN tern_unit_t tern_entry_signal(uint64_t offset, uint64_t value, int add)
{
    tern_unit_t u = {{(value >> 63) << 62 | (uint64_t)add << 61 | offset >> 3, value & TERN_UNIT_LOW63}};
    return u;
}

/* P64, SIG_SET, SIG_ADD. */
TERN_RING_FN tern_unit_t tern_entry_word(unsigned op, unsigned pe, uint64_t offset, uint64_t value)
{
    uint64_t at = offset >> 3;
    unsigned flags = (unsigned)(value >> 63) << 3 | (unsigned)(at >> TERN_A_BITS);
    tern_unit_t u = {{tern_entry_w0(op, 1, flags, pe, at & TERN_A_MASK), value & TERN_UNIT_LOW63}};
    return u;
}

/* P of 1, 2 or 4 bytes, or of 8 where offset or alignment rules P64 out (then its value goes as two of 4). */
TERN_RING_FN tern_unit_t tern_entry_p(unsigned pe, uint64_t offset, uint32_t value, unsigned log2)
{
    tern_unit_t u = {{tern_entry_w0(TERN_ENTRY_p, 1, 0, pe, offset & TERN_A_MASK),
                      (uint64_t)log2 << 44 | (offset >> TERN_A_BITS) << 32 | value}};
    return u;
}

TERN_RING_FN tern_unit_t tern_entry_g(unsigned pe, uint64_t offset, unsigned log2, unsigned slot)
{
    tern_unit_t u = {{tern_entry_w0(TERN_ENTRY_g, 1, 0, pe, offset & TERN_A_MASK),
                      (uint64_t)slot << 57 | (uint64_t)log2 << 44 | (offset >> TERN_A_BITS) << 32}};
    return u;
}

/* Both units of an AMO. `fetch`: the old value is wanted in `slot`, which also tells that the operation is complete. */
TERN_RING_FN tern_unit_t tern_entry_amo(unsigned pe, uint64_t offset, uint64_t operand)
{
    tern_unit_t u = {{tern_entry_w0(TERN_ENTRY_amo, 2, 0, pe, offset & TERN_A_MASK), operand & TERN_UNIT_LOW63}};
    return u;
}
TERN_RING_FN tern_unit_t tern_entry_amo_more(uint64_t offset, unsigned amo, unsigned wide, uint64_t operand,
                                             uint64_t compare, unsigned fetch, unsigned slot)
{
    tern_unit_t u = {{(operand >> 63) << 62 | (compare >> 63) << 61 | (uint64_t)wide << 60 | (uint64_t)amo << 54 |
                          (uint64_t)fetch << 53 | (offset >> TERN_A_BITS) << 41 | (uint64_t)slot << 35,
                      compare & TERN_UNIT_LOW63}};
    return u;
}

/* FENCE, QUIET (pe: a PE or TERN_PE_ALL), REPLY (to the entry on the tickets just before), NOP. */
TERN_RING_FN tern_unit_t tern_entry_plain(unsigned op, unsigned pe, unsigned slot)
{
    tern_unit_t u = {{tern_entry_w0(op, 1, 0, pe, slot), 0}};
    return u;
}

/* Where the slot begins in the last unit of what asks: bit of W0, or 64 + bit of W1. */
#define TERN_SLOT_BIT_PLAIN 0u
#define TERN_SLOT_BIT_AMO 35u
#define TERN_SLOT_BIT_G (64u + 57u)

TERN_STATIC_ASSERT(sizeof(struct tern_ring_dev) == 128, "one line a ring");
TERN_STATIC_ASSERT(sizeof(struct tern_reply) == 32, "shared by kernels and the proxy");
TERN_STATIC_ASSERT(sizeof(struct tern_ring_host) == 128 + 32 * TERN_RING_REPLIES, "shared by kernels and the proxy");
TERN_STATIC_ASSERT(sizeof(tern_unit_t) == 16, "shared by kernels and the proxy");
TERN_STATIC_ASSERT((TERN_RING_UNITS & (TERN_RING_UNITS - 1)) == 0 && TERN_RING_UNITS >= TERN_RING_LEAST, "wrap by mask");
TERN_STATIC_ASSERT(TERN_ENTRY_COUNT <= 32 && TERN_AMO_COUNT <= 64, "5 and 6 bits");

#endif
