/*
 * tern/detail/copy.h - copies by the threads of a scope: 16-byte vectors with several in flight a thread, out of line,
 * so that a put costs its kernel few registers; bulk-async through a lent stage where the device has that engine (sm_90)
 * and it is faster.
 */
#ifndef TERN_DETAIL_COPY_H
#define TERN_DETAIL_COPY_H

#include <tern/detail/order.h>

#define TERN_COPY_FLIGHT 8       /* vectors in flight a thread */
#define TERN_COPY_FLIGHT_SMALL 2 /* the same of smaller units: rare, and registers of a slow path are every kernel's */
/* The same of a block: 64 blocks of 1024 threads copy 64 MiB at 1907 GB/s with four, 1763 with eight, 1789 with two (H200). */
#define TERN_COPY_FLIGHT_BLOCK 4

/*
 * Units of type T: `n` of them, dealt out to `threads` threads. All loads of a round come before its stores, also in the
 * last, partial one: a load that waits for the store before it would cost a memory latency a unit. Addresses step from one
 * access to the next: eight of them at once would cost 32 registers.
 */
#define TERN_COPY_UNITS(qualifiers, name, T, flight, LOAD, STORE)                                                      \
    qualifiers void tern_copy_##name(char *dst, const char *src, size_t n, unsigned rank, unsigned threads)           \
    {                                                                                                                  \
        const T *s = (const T *)src + rank;                                                                            \
        T *d = (T *)dst + rank;                                                                                        \
        size_t i = rank;                                                                                               \
        for (; i + (flight - 1) * threads < n; i += flight * threads) {                                                \
            T v[flight];                                                                                               \
            _Pragma("unroll") for (int k = 0; k < flight; k++, s += threads) v[k] = LOAD(s);                           \
            _Pragma("unroll") for (int k = 0; k < flight; k++, d += threads) STORE(d, v[k]);                           \
        }                                                                                                              \
        if (i < n) {                                                                                                   \
            size_t left = n - i;                                                                                       \
            T v[flight];                                                                                               \
            _Pragma("unroll") for (int k = 0; k < flight; k++, s += threads) if (k * threads < left) v[k] = LOAD(s);   \
            _Pragma("unroll") for (int k = 0; k < flight; k++, d += threads) if (k * threads < left) STORE(d, v[k]);   \
        }                                                                                                              \
    }
TERN_COPY_UNITS(TERN_DEV_SLOW, v4, tern_v4_t, TERN_COPY_FLIGHT, tern_prim_ld_v4, tern_prim_st_v4)
TERN_COPY_UNITS(TERN_DEV_SLOW, v4_block, tern_v4_t, TERN_COPY_FLIGHT_BLOCK, tern_prim_ld_v4, tern_prim_st_v4)
TERN_COPY_UNITS(TERN_DEV, u64, uint64_t, TERN_COPY_FLIGHT_SMALL, tern_prim_ld_relaxed_u64, tern_prim_st_relaxed_u64)
TERN_COPY_UNITS(TERN_DEV, u32, uint32_t, TERN_COPY_FLIGHT_SMALL, tern_prim_ld_relaxed_u32, tern_prim_st_relaxed_u32)
TERN_COPY_UNITS(TERN_DEV, u16, uint16_t, TERN_COPY_FLIGHT_SMALL, tern_prim_ld_relaxed_u16, tern_prim_st_relaxed_u16)
TERN_COPY_UNITS(TERN_DEV, u8, uint8_t, TERN_COPY_FLIGHT_SMALL, tern_prim_ld_relaxed_u8, tern_prim_st_relaxed_u8)

/*
 * Fewer than 16 bytes at the edge of an aligned run, in pieces of 1, 2, 4, 8: before it (`up`: pieces grow towards the run)
 * or behind it (they shrink). Source and destination are aligned alike.
 */
TERN_DEV void tern_copy_edge(char *dst, const char *src, unsigned n, bool up)
{
    unsigned at1 = up ? 0 : n & 14, at2 = up ? n & 1 : n & 12, at4 = up ? n & 3 : n & 8, at8 = up ? n & 7 : 0;
    uint8_t v1 = 0;
    uint16_t v2 = 0;
    uint32_t v4 = 0;
    uint64_t v8 = 0;
    if (n & 1)
        v1 = tern_prim_ld_relaxed_u8((const uint8_t *)(src + at1));
    if (n & 2)
        v2 = tern_prim_ld_relaxed_u16((const uint16_t *)(src + at2));
    if (n & 4)
        v4 = tern_prim_ld_relaxed_u32((const uint32_t *)(src + at4));
    if (n & 8)
        v8 = tern_prim_ld_relaxed_u64((const uint64_t *)(src + at8));
    if (n & 1)
        tern_prim_st_relaxed_u8((uint8_t *)(dst + at1), v1);
    if (n & 2)
        tern_prim_st_relaxed_u16((uint16_t *)(dst + at2), v2);
    if (n & 4)
        tern_prim_st_relaxed_u32((uint32_t *)(dst + at4), v4);
    if (n & 8)
        tern_prim_st_relaxed_u64((uint64_t *)(dst + at8), v8);
}

/* Any alignment and size: edges by single threads, the run between in the largest unit that both sides allow. */
TERN_DEV_SLOW void tern_copy_odd(char *dst, const char *src, size_t bytes, unsigned rank, unsigned threads)
{
    unsigned unit = 16;
    while (((uintptr_t)dst ^ (uintptr_t)src) & (unit - 1))
        unit /= 2;
    unsigned head = (unsigned)(-(uintptr_t)dst & (unit - 1));
    if (head > bytes) { /* ends before the first boundary: at most 15 bytes, one by one */
        head = 0;
        unit = 1;
    }
    size_t run = (bytes - head) / unit;
    unsigned tail = (unsigned)((bytes - head) % unit);
    if (rank == 0)
        tern_copy_edge(dst, src, head, true);
    if (rank == threads - 1)
        tern_copy_edge(dst + bytes - tail, src + bytes - tail, tail, false);
    dst += head;
    src += head;
    if (unit == 16)
        tern_copy_v4(dst, src, run, rank, threads);
    else if (unit == 8)
        tern_copy_u64(dst, src, run, rank, threads);
    else if (unit == 4)
        tern_copy_u32(dst, src, run, rank, threads);
    else if (unit == 2)
        tern_copy_u16(dst, src, run, rank, threads);
    else
        tern_copy_u8(dst, src, run, rank, threads);
}

#ifdef TERN_PRIM_BULK
#define TERN_BULK_SLOTS 4u
#define TERN_BULK_MOST (1u << 30) /* bytes in one go */
#define TERN_BULK_HEAD 128u /* barrier words, at the stage's begin */

/* Equal pieces of at most `most` bytes, multiples of 16: a short last one would cost as much as a long one. */
TERN_DEV uint32_t tern_bulk_piece(uint32_t bytes, uint32_t most, uint32_t *pieces)
{
    *pieces = bytes <= most ? 1 : (bytes + most - 1) / most;
    return *pieces == 1 ? bytes : ((bytes + *pieces - 1) / *pieces + 15) & ~15u;
}

/*
 * One thread copies `bytes` (below 2 GiB, 16-byte aligned, a multiple of 16, global memory on both sides) through the stage,
 * three pieces ahead. The stage is free again on return, and the destination written. 32-bit counts: a 64-bit division takes
 * 100 ns of a thread's time.
 */
TERN_DEV_SLOW void tern_copy_bulk(char *dst, const char *src, uint32_t bytes, void *stage, uint32_t stage_bytes)
{
    uint32_t barriers = tern_prim_shared_addr(stage), slots = barriers + TERN_BULK_HEAD, pieces;
    uint32_t piece = tern_bulk_piece(bytes, (stage_bytes - TERN_BULK_HEAD) / TERN_BULK_SLOTS & ~15u, &pieces);
    uint32_t used = pieces < TERN_BULK_SLOTS ? pieces : TERN_BULK_SLOTS;
    for (uint32_t k = 0; k < used; k++)
        tern_prim_bulk_init(barriers + 8 * k);
    tern_order_async_fence();
#define TERN_BULK_BYTES(i) (bytes - (i) * piece < piece ? bytes - (i) * piece : piece)
    for (uint32_t k = 0; k < used; k++)
        tern_prim_bulk_load(slots + k * piece, src + k * piece, TERN_BULK_BYTES(k), barriers + 8 * k);
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t k = i % TERN_BULK_SLOTS, phase = i / TERN_BULK_SLOTS & 1;
        tern_prim_bulk_load_wait(barriers + 8 * k, phase);
        tern_prim_bulk_store(dst + i * piece, slots + k * piece, TERN_BULK_BYTES(i));
        uint32_t next = i + TERN_BULK_SLOTS - 1; /* into the slot of piece i - 1, whose store has then been read */
        if (i > 0 && next < pieces) {
            k = next % TERN_BULK_SLOTS;
            tern_prim_bulk_store_read_but_last();
            tern_prim_bulk_load(slots + k * piece, src + next * piece, TERN_BULK_BYTES(next), barriers + 8 * k);
        }
    }
#undef TERN_BULK_BYTES
    tern_prim_bulk_store_wait();
    for (uint32_t k = 0; k < used; k++)
        tern_prim_bulk_end(barriers + 8 * k);
}

/* Is the bulk engine, driven by one thread, faster than what the scope's threads can do by themselves? */
TERN_DEV bool tern_copy_bulk_better(int scope, size_t bytes, uint32_t stage_bytes)
{
    if (scope == TERN_SCOPE_THREAD)
        return bytes >= 256;
    if (scope == TERN_SCOPE_WARP)
        return bytes > 32 * 16 * TERN_COPY_FLIGHT;
    return bytes >= 1024 && (bytes <= 65536 || stage_bytes >= 65536 || tern_block_threads() <= 256);
}
#endif

/* Copy by the scope's threads, without barriers. */
TERN_DEV void tern_copy(tern_ctx_t ctx, int scope, char *dst, const char *src, size_t bytes)
{
    unsigned rank = tern_scope_rank(scope), threads = tern_scope_threads(scope);
    uintptr_t odd = ((uintptr_t)dst | (uintptr_t)src | bytes) & 15;
#ifdef TERN_PRIM_BULK
    if (!odd && ctx.stage && tern_copy_bulk_better(scope, bytes, ctx.stage_bytes) && tern_prim_is_global(dst) &&
        tern_prim_is_global(src)) {
        while (rank == 0 && bytes) {
            uint32_t part = bytes < TERN_BULK_MOST ? (uint32_t)bytes : TERN_BULK_MOST;
            tern_copy_bulk(dst, src, part, ctx.stage, ctx.stage_bytes);
            dst += part, src += part, bytes -= part;
        }
        return;
    }
#else
    (void)ctx;
#endif
    if (!odd && scope == TERN_SCOPE_BLOCK)
        tern_copy_v4_block(dst, src, bytes / 16, rank, threads);
    else if (!odd)
        tern_copy_v4(dst, src, bytes / 16, rank, threads);
    else if (bytes == 8 && (odd & 7) == 0) {
        if (rank == 0)
            tern_prim_st_relaxed_u64((uint64_t *)dst, tern_prim_ld_relaxed_u64((const uint64_t *)src));
    } else
        tern_copy_odd(dst, src, bytes, rank, threads);
}

/* Strided elements of 1, 2, 4 or 8 bytes; strides in elements. */
#define TERN_COPY_STRIDED(bits)                                                                                        \
    TERN_DEV_SLOW void tern_copy_strided_u##bits(char *dst, const char *src, ptrdiff_t dst_stride,                     \
                                                 ptrdiff_t src_stride, size_t n, size_t rank, size_t threads)          \
    {                                                                                                                  \
        uint##bits##_t *d = (uint##bits##_t *)dst;                                                                     \
        const uint##bits##_t *s = (const uint##bits##_t *)src;                                                         \
        for (size_t i = rank; i < n; i += TERN_COPY_FLIGHT * threads) {                                                \
            uint##bits##_t v[TERN_COPY_FLIGHT];                                                                        \
            _Pragma("unroll") for (int k = 0; k < TERN_COPY_FLIGHT; k++) if (i + k * threads < n) v[k] =               \
                tern_prim_ld_relaxed_u##bits(s + (ptrdiff_t)(i + k * threads) * src_stride);                           \
            _Pragma("unroll") for (int k = 0; k < TERN_COPY_FLIGHT; k++) if (i + k * threads < n)                      \
                tern_prim_st_relaxed_u##bits(d + (ptrdiff_t)(i + k * threads) * dst_stride, v[k]);                     \
        }                                                                                                              \
    }
TERN_COPY_STRIDED(8)
TERN_COPY_STRIDED(16)
TERN_COPY_STRIDED(32)
TERN_COPY_STRIDED(64)

TERN_DEV void tern_copy_strided(int scope, unsigned size, char *dst, const char *src, ptrdiff_t dst_stride,
                                ptrdiff_t src_stride, size_t n)
{
    unsigned rank = tern_scope_rank(scope), threads = tern_scope_threads(scope);
    if (size == 1)
        tern_copy_strided_u8(dst, src, dst_stride, src_stride, n, rank, threads);
    else if (size == 2)
        tern_copy_strided_u16(dst, src, dst_stride, src_stride, n, rank, threads);
    else if (size == 4)
        tern_copy_strided_u32(dst, src, dst_stride, src_stride, n, rank, threads);
    else
        tern_copy_strided_u64(dst, src, dst_stride, src_stride, n, rank, threads);
}

#endif
