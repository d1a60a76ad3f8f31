/*
 * tern/detail/order.h - every operation of the device API that orders memory or threads, each named by its purpose, with
 * the reason why it is there. Device code calls these, tern_order_NAME(...), and never a primitive that orders.
 *
 * Each has a mutant, weaker than the operation: releases and acquires become relaxed, fences and barriers vanish, relaxed
 * operations get lost. A litmus test must fail with it (scripts/mutants.sh). CPU device, in builds with -Dmutants=true:
 * TERN_CPU_MUTANT=NAME. CUDA device: the build option -Dorder_mutant=NAME.
 */
#ifndef TERN_DETAIL_ORDER_H
#define TERN_DETAIL_ORDER_H

#include <tern/detail/prim.h>
#include <tern/detail/scope.h>

/* X(name, kind, reason) */
/* clang-format off */
#define TERN_ORDER_TABLE(X)                                                                                             \
    X(scope_entry, scope_sync, "the source of a scope call may have been written by any thread of the scope")           \
    X(scope_exit, scope_sync, "after a scope call every thread may reuse the source, read what was got, or signal for it") \
    X(put_signal_join, scope_sync, "all threads' pieces of a put_signal come before the leader's signal")               \
    X(put_signal_release, st_release_u64, "SET signal of put_signal: the data is visible before it")                    \
    X(put_signal_fence, fence_sys, "ADD signal of put_signal: the data is visible before it")                           \
    X(signal_set, st_relaxed_u64, "signal_op SET orders nothing")                                                       \
    X(signal_add, red_add_u64, "signal_op ADD orders nothing; atomic with every other ADD and atomic")                  \
    X(signal_fetch_acquire, ld_acquire_u64, "data put before the signal value that signal_fetch returns is readable")   \
    X(wait_acquire, ld_acquire_u64, "data put before a 64-bit word that satisfies a wait or test is readable")          \
    X(wait_acquire32, ld_acquire_u32, "the same for 32-bit words")                                                      \
    X(wait_join, scope_status, "a wait of a scope: its leader's acquire reaches all threads, and all get one status")   \
    X(fence_fence, fence_sys, "fence: what happened before it is visible before what the thread issues next")           \
    X(fence_entry, scope_sync, "fence_block: all threads' operations come before each thread's fence")                  \
    X(fence_exit, scope_sync, "fence_block: the leader's FENCE is in the ring before what any thread pushes next")      \
    X(quiet_entry, scope_sync, "quiet_block: all threads' operations come before the leader's fence")                   \
    X(quiet_exit, scope_status, "quiet_block: no thread goes on before the leader's fence is done, and all get one status") \
    X(quiet_fence, fence_sys, "quiet: what happened before it is complete at the targets")                              \
    X(async_fence, fence_async, "ordinary loads and stores before the thread's bulk-async copies")                      \
    X(epoch_load, ld_relaxed_u64, "every thread of the scope learns the meeting's epoch")                               \
    X(epoch_store, st_relaxed_u64, "the next meeting of this PE gets the next epoch")                                   \
    X(meet_entry, scope_sync, "sync, barrier: all threads have arrived, and have read the epoch, before any flag")      \
    X(sync_fence, fence_sys, "sync: the PE's own stores are visible before its flags")                                  \
    X(barrier_fence, fence_sys, "barrier: everything the PE put is complete before its flags")                          \
    X(meet_flag, st_relaxed_u64, "sync, barrier: tells a PE that this one has arrived")                                 \
    X(meet_add, red_add_u64, "the same where atomics are direct")                                                       \
    X(meet_acquire, ld_acquire_u64, "sync, barrier: what a PE did before its flag is readable after it")                \
    X(meet_exit, scope_status, "sync, barrier: every thread has what any thread acquired, and all get one status")      \
    X(source_gpu, fence_gpu, "the source in own heap memory is visible to the NIC, which reads by way of the GPU's L2")    \
    X(source_sys, fence_sys, "the same for other memory")                                                               \
    X(amo_near, fence_sys, "an atomic that the proxy executes at a near PE comes behind the thread's direct stores there") \
    X(ring_ticket, rmw_add_u64, "every push has units of its own")                                                      \
    X(ring_space, ld_relaxed_u32, "cached count of units taken: an old one only makes the push look again")             \
    X(ring_taken, ld_acquire_u32, "units that the proxy has taken may be written again; a fence knows them taken")      \
    X(ring_cache, st_release_gpu_u32, "who reads the cached count knows what the thread knew that read the published one") \
    X(ring_behind, ld_relaxed_u32, "a fence waits for every ticket that was drawn before it: heads, cached counts")     \
    X(ring_published, ld_relaxed_u32, "the count of units taken that a fence waits for; fence_taken is behind it")      \
    X(ring_cache_more, st_relaxed_u32, "ring_cache behind fence_taken, for several rings at once")                      \
    X(ring_claim, cas_u32, "one thread at a time reads published counts for all fences that wait for them")             \
    X(ring_unclaim, st_relaxed_u32, "the next may; what it reads is newer, whether or not it sees this one's caches")   \
    X(fence_taken, fence_gpu, "FENCE is pushed behind what the fence has seen taken")                                   \
    X(ring_slots, ld_relaxed_u64, "reply slots that seem free: who takes one makes sure")                               \
    X(slot_take, rmw_and_u64, "a reply slot has one owner")                                                             \
    X(answer_read, arrived_u64, "the answer's value is in its register before the slot is given to the next")           \
    X(slot_free, red_or_u64, "the next owner of the slot; the answer's word has been read: the wait ended by it")       \
    X(reply_acquire, ld_acquire_u64, "what the proxy placed before its answer is readable")                             \
    X(strided_join, scope_sync, "iget: all threads' gets are pushed before the leader's quiet")                         \
    X(meet_quiet, scope_status, "barrier: the leader's quiet of the proxied operations comes before any flag")          \
    X(abort_look, ld_relaxed_u64, "waits look at the copy of the abort word in device memory")                          \
    X(abort_claim, cas_u64, "one lane a PE and 20 us refreshes that copy from pinned host memory")                      \
    X(abort_store, st_relaxed_u64, "the refreshed copy reaches the other waits")                                        \
    X(report_claim, cas_u32, "one lane a runtime writes the report")                                                    \
    X(report_publish, st_release_u32, "the report's fields are visible to the control thread before its kind")
/* clang-format on */

enum {
    TERN_ORD_none,
#define TERN_ORDER_ENUM(name, kind, why) TERN_ORD_##name,
    TERN_ORDER_TABLE(TERN_ORDER_ENUM)
#undef TERN_ORDER_ENUM
    TERN_ORD_COUNT
};

#if defined(TERN_ORDER_MUTANT)
#define TERN_ORDER_PASTE2(a, b) a##b
#define TERN_ORDER_PASTE(a, b) TERN_ORDER_PASTE2(a, b)
#define TERN_ORDER_MUTATED(name) (TERN_ORD_##name == TERN_ORDER_PASTE(TERN_ORD_, TERN_ORDER_MUTANT))
#elif defined(TERN_CPU_MUTANTS) && !defined(__CUDACC__)
#include <tern/detail/mutant.h>
#define TERN_ORDER_MUTATED(name) (TERN_ORD_##name == tern_order_mutant)
#else
#define TERN_ORDER_MUTATED(name) 0
#endif

#define TERN_ORDER static __device__ __forceinline__

/* One definition for each kind: the operation, and its mutant. */
#define TERN_ORDER_DEF_st_release_u64(name)                                                                            \
    TERN_ORDER void tern_order_##name(uint64_t *p, uint64_t v)                                                         \
    {                                                                                                                  \
        if (TERN_ORDER_MUTATED(name))                                                                                  \
            tern_prim_st_relaxed_u64(p, v);                                                                            \
        else                                                                                                           \
            tern_prim_st_release_u64(p, v);                                                                            \
    }
#define TERN_ORDER_DEF_st_release_u32(name)                                                                            \
    TERN_ORDER void tern_order_##name(uint32_t *p, uint32_t v)                                                         \
    {                                                                                                                  \
        if (TERN_ORDER_MUTATED(name))                                                                                  \
            tern_prim_st_relaxed_u32(p, v);                                                                            \
        else                                                                                                           \
            tern_prim_st_release_u32(p, v);                                                                            \
    }
#define TERN_ORDER_DEF_st_relaxed_u64(name)                                                                            \
    TERN_ORDER void tern_order_##name(uint64_t *p, uint64_t v)                                                         \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            tern_prim_st_relaxed_u64(p, v);                                                                            \
    }
#define TERN_ORDER_DEF_st_relaxed_u32(name)                                                                            \
    TERN_ORDER void tern_order_##name(uint32_t *p, uint32_t v)                                                         \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            tern_prim_st_relaxed_u32(p, v);                                                                            \
    }
#define TERN_ORDER_DEF_red_add_u64(name)                                                                               \
    TERN_ORDER void tern_order_##name(uint64_t *p, uint64_t v)                                                         \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            tern_prim_red_add_u64(p, v);                                                                               \
    }
#define TERN_ORDER_DEF_ld_relaxed_u64(name)                                                                            \
    TERN_ORDER uint64_t tern_order_##name(const uint64_t *p)                                                           \
    {                                                                                                                  \
        return TERN_ORDER_MUTATED(name) ? 0 : tern_prim_ld_relaxed_u64(p);                                             \
    }
#define TERN_ORDER_DEF_ld_relaxed_u32(name)                                                                            \
    TERN_ORDER uint32_t tern_order_##name(const uint32_t *p)                                                           \
    {                                                                                                                  \
        return TERN_ORDER_MUTATED(name) ? 0 : tern_prim_ld_relaxed_u32(p);                                             \
    }
#define TERN_ORDER_DEF_ld_acquire_u64(name)                                                                            \
    TERN_ORDER uint64_t tern_order_##name(const uint64_t *p)                                                           \
    {                                                                                                                  \
        return TERN_ORDER_MUTATED(name) ? tern_prim_ld_relaxed_u64(p) : tern_prim_ld_acquire_u64(p);                   \
    }
#define TERN_ORDER_DEF_ld_acquire_u32(name)                                                                            \
    TERN_ORDER uint32_t tern_order_##name(const uint32_t *p)                                                           \
    {                                                                                                                  \
        return TERN_ORDER_MUTATED(name) ? tern_prim_ld_relaxed_u32(p) : tern_prim_ld_acquire_u32(p);                   \
    }
#define TERN_ORDER_DEF_cas_u64(name)                                                                                   \
    TERN_ORDER uint64_t tern_order_##name(uint64_t *p, uint64_t compare, uint64_t value)                               \
    {                                                                                                                  \
        return TERN_ORDER_MUTATED(name) ? compare : tern_prim_rmw_cas_u64(p, compare, value);                          \
    }
#define TERN_ORDER_DEF_cas_u32(name)                                                                                   \
    TERN_ORDER uint32_t tern_order_##name(uint32_t *p, uint32_t compare, uint32_t value)                               \
    {                                                                                                                  \
        return TERN_ORDER_MUTATED(name) ? compare : tern_prim_rmw_cas_u32(p, compare, value);                          \
    }
#define TERN_ORDER_DEF_fence_sys(name)                                                                                 \
    TERN_ORDER void tern_order_##name(void)                                                                            \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            tern_prim_fence_sys();                                                                                     \
    }
#define TERN_ORDER_DEF_fence_gpu(name)                                                                                 \
    TERN_ORDER void tern_order_##name(void)                                                                            \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            tern_prim_fence_gpu();                                                                                     \
    }
#define TERN_ORDER_DEF_st_release_gpu_u32(name)                                                                        \
    TERN_ORDER void tern_order_##name(uint32_t *p, uint32_t v)                                                         \
    {                                                                                                                  \
        if (TERN_ORDER_MUTATED(name))                                                                                  \
            tern_prim_st_relaxed_u32(p, v);                                                                            \
        else                                                                                                           \
            tern_prim_st_release_gpu_u32(p, v);                                                                        \
    }
/* Mutants of these are not atomic. */
#define TERN_ORDER_DEF_rmw_add_u64(name)                                                                               \
    TERN_ORDER uint64_t tern_order_##name(uint64_t *p, uint64_t v)                                                     \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            return tern_prim_rmw_add_u64(p, v);                                                                        \
        uint64_t old = tern_prim_ld_relaxed_u64(p);                                                                    \
        tern_prim_pause();                                                                                             \
        tern_prim_st_relaxed_u64(p, old + v);                                                                          \
        return old;                                                                                                    \
    }
#define TERN_ORDER_DEF_rmw_and_u64(name)                                                                               \
    TERN_ORDER uint64_t tern_order_##name(uint64_t *p, uint64_t v)                                                     \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            return tern_prim_rmw_and_u64(p, v);                                                                        \
        uint64_t old = tern_prim_ld_relaxed_u64(p);                                                                    \
        tern_prim_pause();                                                                                             \
        tern_prim_st_relaxed_u64(p, old & v);                                                                          \
        return old;                                                                                                    \
    }
#define TERN_ORDER_DEF_red_or_u64(name)                                                                                \
    TERN_ORDER void tern_order_##name(uint64_t *p, uint64_t v)                                                         \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            tern_prim_red_or_u64(p, v);                                                                                \
    }
#define TERN_ORDER_DEF_arrived_u64(name)                                                                               \
    TERN_ORDER void tern_order_##name(uint64_t v)                                                                      \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            tern_prim_arrived(v);                                                                                      \
    }
#define TERN_ORDER_DEF_fence_async(name)                                                                               \
    TERN_ORDER void tern_order_##name(void)                                                                            \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            tern_prim_fence_async();                                                                                   \
    }
#define TERN_ORDER_DEF_scope_sync(name)                                                                                \
    TERN_ORDER void tern_order_##name(int scope)                                                                       \
    {                                                                                                                  \
        if (!TERN_ORDER_MUTATED(name))                                                                                 \
            tern_scope_sync(scope);                                                                                    \
    }
#define TERN_ORDER_DEF_scope_status(name)                                                                              \
    TERN_ORDER tern_status_t tern_order_##name(int scope, tern_status_t status)                                        \
    {                                                                                                                  \
        return TERN_ORDER_MUTATED(name) ? status : tern_scope_status(scope, status);                                   \
    }

#define TERN_ORDER_DEF(name, kind, why) TERN_ORDER_DEF_##kind(name)
TERN_ORDER_TABLE(TERN_ORDER_DEF)
#undef TERN_ORDER_DEF
#undef TERN_ORDER

#endif
