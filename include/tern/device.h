/*
 * tern/device.h - the device API: what a kernel calls. Include it in a .cu file, take a tern_ctx_t (filled on the host by
 * tern_ctx(&ctx)) as kernel argument, and call. Needs no device library, no -rdc=true and no set-up per module.
 *
 *   __global__ void hello(tern_ctx_t ctx, uint64_t *sig, int *dst, const int *src)
 *   {
 *       int to = (tern_my_pe(ctx) + 1) % tern_n_pes(ctx);
 *       tern_put_signal_nbi_block(ctx, dst, src, 1024 * sizeof(int), sig, 1, TERN_SIGNAL_SET, to);
 *       tern_signal_wait_until_block(ctx, sig, TERN_CMP_EQ, 1);   // now dst has the data of the PE before this one
 *   }
 *
 * Scopes. A plain call is made by one thread. _warp and _block calls are made by all threads of the warp or block, with
 * equal arguments; they begin and end with a barrier of that scope (waits: end; fence: begin), so any thread may have
 * written the source, and every thread may go on with the result.
 *
 * Addresses. `dst` of a put and `src` of a get are symmetric: an address of this PE's heap (tern_malloc), which names the
 * same place at PE `pe`. The local side is any memory that the thread can access; where PE `pe` is out of reach of loads and
 * stores (tern_ptr gives NULL), it lies in the heap or in one buffer of tern_buffer_register, but for puts, iputs and blocking
 * gets of aligned words of 1, 2, 4 or 8 bytes: other memory is reported and ends the job. Sizes are bytes, counts are elements.
 * Signal words are 8-byte aligned symmetric uint64_t. The own PE is a valid target everywhere.
 *
 * Order. Puts, gets, p and g are unordered until tern_fence (puts, for each destination) or tern_quiet (complete at the
 * targets). put_signal makes its data visible before its signal. signal_op and atomics order nothing. Waits and tests
 * acquire: data that was put with a signal, or put before a fence before it, is readable by the thread whose wait or test is
 * satisfied, and by its block after a block barrier, but never through non-coherent loads (__ldg, const __restrict__).
 *
 * Progress. Blocks that wait for others, of this PE or another, must all run at the same time: launch no more than fit on the
 * GPU (cudaOccupancyMaxActiveBlocksPerMultiprocessor) beside what else runs on it; PEs that share a GPU share its room. Else
 * they wait for ever, or until the deadline of tern_ctx_timeout. The CPU device finds out and aborts the job.
 *
 * Errors. Arguments are checked under TERN_CHECK=1: a bad one is reported, the operation dropped and the job aborted;
 * otherwise it is undefined. After a job abort all waits end with TERN_ERR_ABORTED or TERN_ERR_PEER_DEAD; operations are
 * dropped, g and fetching atomics return 0, and what a get should have brought is undefined. An operation to a far PE that fails
 * later is told by the next quiet that covers it.
 */
#ifndef TERN_DEVICE_H
#define TERN_DEVICE_H

#include <tern/tern.h>
#include <tern/detail/platform.h>

/* ---- launch (host) ----------------------------------------------------------------------------------------------------- */

/*
 * tern_status_t tern_launch(kernel, dim3 grid, dim3 block, size_t smem, tern_stream_t stream, args...)
 *   Launch a kernel, on either device, with the arguments converted to its parameter types; returns as soon as it is queued.
 *   TERN_ERR_INVALID or TERN_ERR_DEVICE, with the reason, if the launch cannot be.
 * tern_status_t tern_launch_ptr(const void *fn, dim3 grid, dim3 block, void **args, size_t smem, tern_stream_t stream)
 *   The same by pointer: args[i] is the address of argument i, copied before the call returns.
 * They come with the platform header, since the CUDA runtime that launches is the one of the calling source file.
 */

/* ---- context ----------------------------------------------------------------------------------------------------------- */

/** Number of this PE, and of all PEs. Host and device. */
TERN_DEV_HOST int tern_my_pe(tern_ctx_t ctx);
TERN_DEV_HOST int tern_n_pes(tern_ctx_t ctx);

/** Address for loads and stores to `addr` of PE `pe`; NULL if there is none or `addr` is not in the span of symmetric memory. */
TERN_DEV void *tern_ptr(tern_ctx_t ctx, const void *addr, int pe);

/**
 * A context with these flags (0 or TERN_RELEASED) for the calls that take it. TERN_RELEASED: all stores that the call has to
 * make visible were released at system scope before (tern_fence, tern_quiet, a put_signal's release, the end of a kernel) by
 * the thread that made them, or by one that learned of them; a block barrier alone is not enough. tern_sync_all is then
 * arrival only, without its fence, and puts to far PEs do not release their source. tern_barrier_all ignores it. Host and
 * device.
 */
TERN_DEV_HOST tern_ctx_t tern_ctx_flags(tern_ctx_t ctx, uint32_t flags);

/** A context whose waits return TERN_ERR_TIMEOUT after `ms` milliseconds (to within ~20 us); 0: none. Host and device. */
TERN_DEV_HOST tern_ctx_t tern_ctx_timeout(tern_ctx_t ctx, uint32_t ms);

/**
 * A context that lends `bytes` of the block's shared memory to copies: puts and gets through it use bulk-async copies where
 * the device has them and they are faster (one thread copies like a block). 128-byte aligned, at least 1 KiB, 32 KiB is
 * good; otherwise it is not used (TERN_CHECK=1: reported). One call at a time may use it: thread and warp calls that run side
 * by side need a stage each. It is the caller's again when the call returns; its contents are then undefined.
 */
TERN_DEV tern_ctx_t tern_ctx_stage(tern_ctx_t ctx, void *smem, size_t bytes);
#define TERN_STAGE_ALIGN 128u
#define TERN_STAGE_MIN 1024u
#define TERN_STAGE_MAX (1u << 20)

/** TERN_OK, or TERN_ERR_ABORTED / TERN_ERR_PEER_DEAD once the job is aborted: for loops of your own that wait for peers. */
TERN_DEV tern_status_t tern_ctx_status(tern_ctx_t ctx);

/* ---- put, get ------------------------------------------------------------------------------------------------------------ */

/**
 * Copy `bytes` to `dst` of PE `pe`. tern_put returns when `src` may be reused, tern_put_nbi at once (reuse after tern_quiet).
 * Any size and alignment; 16-byte aligned ones are fastest. Neither says when the data has arrived: tern_fence and a signal,
 * put_signal, or tern_quiet and a barrier do.
 */
#define TERN_DECLARE_PUT(suffix)                                                                                       \
    TERN_DEV void tern_put##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, int pe);                  \
    TERN_DEV void tern_put_nbi##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, int pe);
TERN_DECLARE_PUT()
TERN_DECLARE_PUT(_warp)
TERN_DECLARE_PUT(_block)

/**
 * Copy `bytes` from `src` of PE `pe` to `dst`. tern_get returns when the data is in `dst` (scope calls: readable by all their
 * threads), tern_get_nbi at once (data after tern_quiet). Gets see what happened before them through a signal or barrier; to
 * poll a word that changes, use tern_TYPE_g.
 */
#define TERN_DECLARE_GET(suffix)                                                                                       \
    TERN_DEV void tern_get##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, int pe);                  \
    TERN_DEV void tern_get_nbi##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, int pe);
TERN_DECLARE_GET()
TERN_DECLARE_GET(_warp)
TERN_DECLARE_GET(_block)

/**
 * Put, then apply `val` to the signal word `sig` of the same PE by `op` (TERN_SIGNAL_SET, _ADD): whoever sees the signal (by
 * a wait, a test, tern_signal_fetch) sees the data of this put. It does not order other puts; tern_fence before it does.
 * Blocking and _nbi as for put. `bytes` may be 0.
 */
#define TERN_DECLARE_PUT_SIGNAL(suffix)                                                                                \
    TERN_DEV void tern_put_signal##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, uint64_t *sig,     \
                                          uint64_t val, int op, int pe);                                               \
    TERN_DEV void tern_put_signal_nbi##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, uint64_t *sig, \
                                              uint64_t val, int op, int pe);
TERN_DECLARE_PUT_SIGNAL()
TERN_DECLARE_PUT_SIGNAL(_warp)
TERN_DECLARE_PUT_SIGNAL(_block)

/**
 * Scalars, for each type of TERN_SCALAR_TYPES: tern_TYPE_p stores `value` to `dst` of PE `pe` (a put), tern_TYPE_g returns
 * what is at `src` of PE `pe` now. Single accesses, never torn; aligned to the type.
 */
#define TERN_DECLARE_SCALAR(name, T)                                                                                   \
    TERN_DEV void tern_##name##_p(tern_ctx_t ctx, T *dst, T value, int pe);                                            \
    TERN_DEV T tern_##name##_g(tern_ctx_t ctx, const T *src, int pe);
TERN_SCALAR_TYPES(TERN_DECLARE_SCALAR)

/**
 * Strided copies of `count` elements, for each type of TERN_SCALAR_TYPES: element i goes from src[i * src_stride] to
 * dst[i * dst_stride]. Strides are in elements and may be negative. iput is a blocking put, iget a blocking get.
 */
#define TERN_DECLARE_STRIDED_IN(name, T, suffix)                                                                       \
    TERN_DEV void tern_##name##_iput##suffix(tern_ctx_t ctx, T *dst, const T *src, ptrdiff_t dst_stride,               \
                                             ptrdiff_t src_stride, size_t count, int pe);                              \
    TERN_DEV void tern_##name##_iget##suffix(tern_ctx_t ctx, T *dst, const T *src, ptrdiff_t dst_stride,               \
                                             ptrdiff_t src_stride, size_t count, int pe);
#define TERN_DECLARE_STRIDED(name, T)                                                                                  \
    TERN_DECLARE_STRIDED_IN(name, T, )                                                                                 \
    TERN_DECLARE_STRIDED_IN(name, T, _warp)                                                                            \
    TERN_DECLARE_STRIDED_IN(name, T, _block)
TERN_SCALAR_TYPES(TERN_DECLARE_STRIDED)

/* ---- signals, waits ------------------------------------------------------------------------------------------------------ */

/**
 * Apply `val` to the signal word `sig` of PE `pe` by `op` (TERN_SIGNAL_SET, _ADD). Orders nothing, so it is cheap: for data
 * put before, call tern_fence first or use put_signal. ADD is atomic with all ADDs and atomics on the word, and like
 * these it may have to go to the owner's proxy (tern-info: atomics home), microseconds even to a load/store peer.
 */
TERN_DEV void tern_signal_op(tern_ctx_t ctx, uint64_t *sig, uint64_t val, int op, int pe);

/** Value of the own PE's signal word; acquires like a test. */
TERN_DEV uint64_t tern_signal_fetch(tern_ctx_t ctx, const uint64_t *sig);

/**
 * Wait until `*sig CMP val` (TERN_CMP_*, unsigned) on this PE. TERN_OK: satisfied, and acquired. TERN_ERR_TIMEOUT: the
 * context's deadline passed; nothing else has changed. TERN_ERR_ABORTED, TERN_ERR_PEER_DEAD: the job was aborted. Scope calls
 * return one status to all threads, and end with a barrier after which all of them may read the data.
 */
TERN_DEV tern_status_t tern_signal_wait_until(tern_ctx_t ctx, uint64_t *sig, int cmp, uint64_t val);
TERN_DEV tern_status_t tern_signal_wait_until_warp(tern_ctx_t ctx, uint64_t *sig, int cmp, uint64_t val);
TERN_DEV tern_status_t tern_signal_wait_until_block(tern_ctx_t ctx, uint64_t *sig, int cmp, uint64_t val);

/**
 * Waits of one thread on words of each type of TERN_INT_TYPES in the own PE's symmetric memory, which others write by
 * tern_TYPE_p, put, atomics or signals. Status as for tern_signal_wait_until.
 *   wait_until       one word
 *   wait_until_any   at least one of `count` words; *index is the first found
 *   wait_until_all   every word, each at some moment of the call
 *   wait_until_some  at least one; all that satisfy it are listed in `indices` (room for `count`), *found says how many
 * Words i with mask[i] != 0 do not take part; mask may be NULL. If none takes part they return TERN_OK at once, with
 * *index = SIZE_MAX, *found = 0. After a failure *index is SIZE_MAX and *found is 0.
 */
#define TERN_DECLARE_WAIT(name, T)                                                                                     \
    TERN_DEV tern_status_t tern_##name##_wait_until(tern_ctx_t ctx, T *word, int cmp, T value);                        \
    TERN_DEV tern_status_t tern_##name##_wait_until_any(tern_ctx_t ctx, T *words, size_t count, const int *mask,       \
                                                        int cmp, T value, size_t *index);                              \
    TERN_DEV tern_status_t tern_##name##_wait_until_all(tern_ctx_t ctx, T *words, size_t count, const int *mask,       \
                                                        int cmp, T value);                                             \
    TERN_DEV tern_status_t tern_##name##_wait_until_some(tern_ctx_t ctx, T *words, size_t count, size_t *indices,      \
                                                         const int *mask, int cmp, T value, size_t *found);
TERN_INT_TYPES(TERN_DECLARE_WAIT)

/**
 * The same questions without waiting; they acquire when the answer is yes.
 *   test       1 or 0
 *   test_any   index of the first word that satisfies it, SIZE_MAX if none does
 *   test_all   1 if every word that takes part does (also if none takes part), else 0
 *   test_some  how many do; their indices in `indices`
 */
#define TERN_DECLARE_TEST(name, T)                                                                                     \
    TERN_DEV int tern_##name##_test(tern_ctx_t ctx, T *word, int cmp, T value);                                        \
    TERN_DEV size_t tern_##name##_test_any(tern_ctx_t ctx, T *words, size_t count, const int *mask, int cmp, T value); \
    TERN_DEV int tern_##name##_test_all(tern_ctx_t ctx, T *words, size_t count, const int *mask, int cmp, T value);    \
    TERN_DEV size_t tern_##name##_test_some(tern_ctx_t ctx, T *words, size_t count, size_t *indices, const int *mask,  \
                                            int cmp, T value);
TERN_INT_TYPES(TERN_DECLARE_TEST)

/* ---- atomics ------------------------------------------------------------------------------------------------------------- */

/**
 * Atomics on words of PE `pe`, for 32- and 64-bit integers; fetch, swap, compare_swap and fetch_OP return the value before.
 * Atomic with each other whoever issues them, the owner through this API included; plain stores and puts are not. They
 * order nothing. compare_swap stores `value` if the word equals `compare`. float and double: fetch, set, swap, add,
 * fetch_add.
 */
#define TERN_DECLARE_ATOMIC_ANY(name, T)                                                                               \
    TERN_DEV T tern_##name##_atomic_fetch(tern_ctx_t ctx, const T *src, int pe);                                       \
    TERN_DEV void tern_##name##_atomic_set(tern_ctx_t ctx, T *dst, T value, int pe);                                   \
    TERN_DEV T tern_##name##_atomic_swap(tern_ctx_t ctx, T *dst, T value, int pe);                                     \
    TERN_DEV void tern_##name##_atomic_add(tern_ctx_t ctx, T *dst, T value, int pe);                                   \
    TERN_DEV T tern_##name##_atomic_fetch_add(tern_ctx_t ctx, T *dst, T value, int pe);
#define TERN_DECLARE_ATOMIC_INT(name, T)                                                                               \
    TERN_DEV T tern_##name##_atomic_compare_swap(tern_ctx_t ctx, T *dst, T compare, T value, int pe);                  \
    TERN_DEV void tern_##name##_atomic_inc(tern_ctx_t ctx, T *dst, int pe);                                            \
    TERN_DEV T tern_##name##_atomic_fetch_inc(tern_ctx_t ctx, T *dst, int pe);                                         \
    TERN_DEV void tern_##name##_atomic_and(tern_ctx_t ctx, T *dst, T value, int pe);                                   \
    TERN_DEV T tern_##name##_atomic_fetch_and(tern_ctx_t ctx, T *dst, T value, int pe);                                \
    TERN_DEV void tern_##name##_atomic_or(tern_ctx_t ctx, T *dst, T value, int pe);                                    \
    TERN_DEV T tern_##name##_atomic_fetch_or(tern_ctx_t ctx, T *dst, T value, int pe);                                 \
    TERN_DEV void tern_##name##_atomic_xor(tern_ctx_t ctx, T *dst, T value, int pe);                                   \
    TERN_DEV T tern_##name##_atomic_fetch_xor(tern_ctx_t ctx, T *dst, T value, int pe);
TERN_INT_TYPES(TERN_DECLARE_ATOMIC_ANY)
TERN_FLOAT_TYPES(TERN_DECLARE_ATOMIC_ANY)
TERN_INT_TYPES(TERN_DECLARE_ATOMIC_INT)

/* ---- order, completion --------------------------------------------------------------------------------------------------- */

/**
 * Order what happened before the call, in any thread or block of this PE that the caller has synchronised with, against what
 * the calling thread issues afterwards: no PE sees the later ones without the earlier. Whoever signals on behalf of others
 * fences itself. _block: the whole block calls; a block barrier, then it covers all its threads' operations, for each of them.
 */
TERN_DEV void tern_fence(tern_ctx_t ctx);
TERN_DEV void tern_fence_block(tern_ctx_t ctx);

/**
 * Return when all that happened before the call (as for tern_fence) is complete at the targets: every source is reusable,
 * every get's data there. TERN_OK, or the status of an operation that could not be completed. quiet_pe: for operations to
 * PE `pe` only.
 */
TERN_DEV tern_status_t tern_quiet(tern_ctx_t ctx);
TERN_DEV tern_status_t tern_quiet_block(tern_ctx_t ctx);
TERN_DEV tern_status_t tern_quiet_pe(tern_ctx_t ctx, int pe);
TERN_DEV tern_status_t tern_quiet_pe_block(tern_ctx_t ctx, int pe);

/**
 * Order the thread's earlier waits, loads and stores before bulk-async (TMA) copies that it issues next: those use another
 * path to memory. Call it after a wait, in the thread that then issues the copy.
 */
TERN_DEV void tern_fence_async(void);

/* ---- all PEs meet -------------------------------------------------------------------------------------------------------- */

/**
 * tern_barrier_all: complete this PE's operations (quiet), then wait until every PE has come. tern_sync_all: only makes this
 * PE's own earlier stores visible, then meets (with TERN_RELEASED: only meets). Afterwards what any PE did before is readable
 * by the caller's scope. Called by one thread, warp or block of each PE (the scope may differ between PEs), one at a time;
 * what other threads did counts if they synchronised with the caller. TERN_ERR_ABORTED, TERN_ERR_PEER_DEAD as for waits;
 * past TERN_DEVICE_TIMEOUT_MS the job is aborted with a report of the PE that did not come.
 */
#define TERN_DECLARE_MEET(suffix)                                                                                      \
    TERN_DEV tern_status_t tern_sync_all##suffix(tern_ctx_t ctx);                                                      \
    TERN_DEV tern_status_t tern_barrier_all##suffix(tern_ctx_t ctx);
TERN_DECLARE_MEET()
TERN_DECLARE_MEET(_warp)
TERN_DECLARE_MEET(_block)

/* The bodies. */
#include <tern/detail/addr.h>
#include <tern/detail/rma.h>
#include <tern/detail/signal.h>
#include <tern/detail/wait.h>
#include <tern/detail/atomic.h>
#include <tern/detail/collect.h>

#endif
