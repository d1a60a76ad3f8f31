/*
 * tern/detail/state.h - the state block: everything a device call reads that may change during the life of the runtime,
 * and the words of the internal segment that device code of other PEs writes. Shared by host and device, hence the static
 * asserts. Private: programs use tern/device.h.
 */
#ifndef TERN_DETAIL_STATE_H
#define TERN_DETAIL_STATE_H

#include <tern/types.h>

/*
 * Abort word: 0 = none, else [63:32] generation, [31:16] PE that caused it (0xffff = none), [15:0] status.
 * Written once by the control thread; sticky.
 */
#define TERN_ABORT_WORD(generation, pe, status) \
    ((uint64_t)(generation) << 32 | (uint64_t)((uint32_t)(pe) & 0xffffu) << 16 | (uint64_t)(status))
#define TERN_ABORT_STATUS(word) ((uint32_t)((word) & 0xffffu))
#define TERN_ABORT_PE(word) ((int)(int16_t)((word) >> 16 & 0xffffu))

/* How old the device copy of the abort word may be before a waiting lane refreshes it. */
#define TERN_ABORT_STALE_NS 20000u

/* What a report asks of the host: the device found a bad argument, or a wait of the library passed its deadline. */
enum { TERN_REPORT_NONE = 0, TERN_REPORT_CHECK = 1, TERN_REPORT_TIMEOUT = 2 };

/* Device call named in a report: X(name). The enumerator is TERN_CALL_name. */
#define TERN_CALL_TABLE(X)                                                                                             \
    X(none) X(put) X(get) X(p) X(g) X(iput) X(iget) X(put_signal) X(signal_op) X(signal_wait_until) X(wait_until)      \
    X(test) X(atomic) X(fence) X(quiet) X(sync_all) X(barrier_all) X(ctx_stage) X(signal_fetch)
enum {
#define TERN_CALL_ENUM(name) TERN_CALL_##name,
    TERN_CALL_TABLE(TERN_CALL_ENUM)
#undef TERN_CALL_ENUM
    TERN_CALL_COUNT
};

/* Why a check failed. */
enum {
    TERN_WHY_NONE,
    TERN_WHY_PE,        /* PE out of range */
    TERN_WHY_ADDRESS,   /* not a symmetric address, or beyond the end of the heap */
    TERN_WHY_ALIGN,     /* address not aligned to its type */
    TERN_WHY_STALE,     /* context of an ended runtime */
    TERN_WHY_OP,        /* unknown comparison, signal or other operator */
    TERN_WHY_STAGE,     /* stage not in shared memory, unaligned or too small */
    TERN_WHY_TIMEOUT,   /* a library wait passed its deadline */
    TERN_WHY_BUFFER     /* local memory of a proxied operation is neither in the heap nor registered */
};

/* One record per runtime: the first lane that swaps `claim` from 0 to 1 fills it, then stores `kind` with release. */
struct tern_report {
    uint32_t claim;
    uint32_t kind;          /* TERN_REPORT_*; read by the control thread with acquire */
    uint16_t call, why;     /* TERN_CALL_*, TERN_WHY_* */
    int32_t pe;
    uint64_t address, bytes;
    uint32_t block, thread; /* linear */
    uint64_t value;         /* what a late wait waited for; alignment; operator */
};

/* Host half: pinned host memory, written by stores of CPU threads, without device calls; `report` by kernels. */
struct tern_state_host {
    uint64_t abort;         /* abort word */
    uint32_t generation;    /* of the running runtime; 0 after finalize */
    uint32_t pad0;
    uint64_t pad1[14];
    struct tern_report report;
    uint64_t pad2[9];
};

/* Device half: device memory. Kernels poll only this one. */
struct tern_buffer_dev;
struct tern_state_dev {
    uint64_t abort;         /* copy of the host's abort word */
    uint64_t abort_ns;      /* tern_prim_clock_ns() of that copy */
    uint32_t generation;    /* copy of the host's */
    uint32_t pad0;
    uint64_t user_bytes;    /* bytes of the user heap that are backed by memory now */
    uint64_t internal_bytes;/* the same of the internal segment */
    uint64_t library_timeout_ms; /* deadline of library waits (device barrier, sync) */
    /* What slow paths need besides: from here, not from the context, whose fields would be loaded at every fast call. */
    struct tern_state_host *host;   /* device address of the host half */
    const char *heap;               /* own span */
    uint64_t user_offset;
    char *window;                   /* TERN_CTX_SLOTS: span of slot 0, */
    const uint8_t *slots;           /* and slot of each PE, TERN_SLOT_NONE where it is no load/store peer */
    uint64_t stride;
    uint32_t n_pes, n_buffers;
    const struct tern_buffer_dev *buffers; /* registered local memory (ring.h): n_buffers entries, some perhaps free */
    uint64_t pad2[2];
    uint64_t sync_epoch;    /* epochs of sync_all/barrier_all that this PE has begun; on a line of its own */
    uint64_t pad3[15];
};

/* Internal segment of the span, offset 0: the words that other PEs write. One 128-byte line per source PE. */
#define TERN_INTERNAL_LINE 128u
#define TERN_INTERNAL_SYNC 0u /* sync_all/barrier_all flags: line of PE p holds the last epoch that p has reached */

#ifdef __cplusplus
#define TERN_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define TERN_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif
TERN_STATIC_ASSERT(sizeof(struct tern_report) == 48, "shared by kernels and the control thread");
TERN_STATIC_ASSERT(sizeof(struct tern_state_host) == 128 + 48 + 72, "shared by kernels and the control thread");
TERN_STATIC_ASSERT(sizeof(struct tern_state_dev) == 256, "shared by kernels and the host");
TERN_STATIC_ASSERT(offsetof(struct tern_state_dev, sync_epoch) == 128, "epoch on its own line");

#endif
