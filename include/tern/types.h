/* tern/types.h - types, status codes and constants shared by the host API (tern.h) and the device API (device.h). */
#ifndef TERN_TYPES_H
#define TERN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of these headers; tern_version() is that of the library. */
#define TERN_VERSION_MAJOR 0
#define TERN_VERSION_MINOR 1
#define TERN_VERSION_PATCH 0
/** Layout version of tern_ctx_t and of what it points to; checked whenever a context is filled. */
#define TERN_ABI_VERSION 1u

/** Every status: X(name, value, meaning). Zero is success; tern_last_error() tells cause and remedy of the last failure. */
#define TERN_STATUS_TABLE(X)                                                                                          \
    X(TERN_OK, 0, "success")                                                                                          \
    X(TERN_ERR_INVALID, 1, "an argument is out of range or of the wrong kind")                                        \
    X(TERN_ERR_STATE, 2, "called before tern_init, after tern_finalize, or twice")                                    \
    X(TERN_ERR_CONFIG, 3, "a TERN_* variable has a value that is not allowed")                                        \
    X(TERN_ERR_NO_MEMORY, 4, "no memory left")                                                                        \
    X(TERN_ERR_MISMATCH, 5, "the PEs made different collective calls")                                                \
    X(TERN_ERR_VERSION, 6, "library versions, headers or configurations differ")                                      \
    X(TERN_ERR_LAUNCHER, 7, "started as one of many, but the launcher's PMIx server does not answer")                 \
    X(TERN_ERR_BOOTSTRAP, 8, "the PEs could not find each other")                                                     \
    X(TERN_ERR_NO_DEVICE, 9, "no usable GPU")                                                                         \
    X(TERN_ERR_DEVICE, 10, "the device driver reported an error")                                                     \
    X(TERN_ERR_UNREACHABLE, 11, "no path to a PE")                                                                    \
    X(TERN_ERR_TIMEOUT, 12, "a deadline passed")                                                                      \
    X(TERN_ERR_PEER_DEAD, 13, "a PE died")                                                                            \
    X(TERN_ERR_ABORTED, 14, "the job was aborted; only tern_finalize works now")                                      \
    X(TERN_ERR_BUSY, 15, "the object is in use")                                                                      \
    X(TERN_ERR_STALE, 16, "the context belongs to a runtime that has ended")                                          \
    X(TERN_ERR_SYSTEM, 17, "the operating system refused")                                                            \
    X(TERN_ERR_UNSUPPORTED, 18, "not supported by this build or device")                                              \
    X(TERN_ERR_TRANSPORT, 19, "an operation failed on its way to a PE")

/** Result of every call that can fail, on host and device. */
typedef enum tern_status {
#define TERN_STATUS_ENUM(name, value, text) name = value,
    TERN_STATUS_TABLE(TERN_STATUS_ENUM)
#undef TERN_STATUS_ENUM
} tern_status_t;

/** How a signal is applied to its word: replace it, or add to it. */
enum { TERN_SIGNAL_SET = 0, TERN_SIGNAL_ADD = 1 };

/** Comparisons of waits: the wait is satisfied when `*word CMP value`. */
enum { TERN_CMP_EQ = 0, TERN_CMP_NE = 1, TERN_CMP_GT = 2, TERN_CMP_LE = 3, TERN_CMP_LT = 4, TERN_CMP_GE = 5 };

/** Types of the typed calls: X(name in the call, C type). Scalars (`p`, `g`, strided), waits, and atomics. */
#define TERN_INT_TYPES_SMALL(X) X(int8, int8_t) X(int16, int16_t) X(uint8, uint8_t) X(uint16, uint16_t)
#define TERN_INT_TYPES(X) X(int32, int32_t) X(int64, int64_t) X(uint32, uint32_t) X(uint64, uint64_t)
#define TERN_FLOAT_TYPES(X) X(float, float) X(double, double)
#define TERN_SCALAR_TYPES(X) TERN_INT_TYPES_SMALL(X) TERN_INT_TYPES(X) TERN_FLOAT_TYPES(X)

/** Flags of a context (tern_ctx_flags). */
#define TERN_RELEASED 0x1u /**< every writer has already released its stores at system scope, or a kernel boundary lies between */
#define TERN_CTX_USER_FLAGS 0x1u
#define TERN_CTX_CHECK 0x100u       /**< internal: TERN_CHECK=1, device calls check their arguments */
#define TERN_CTX_AMO_DIRECT 0x200u  /**< internal: atomics and ADD signals go by load/store (the atomics home is GPU memory) */
#define TERN_CTX_PROXY 0x400u       /**< internal: some operations go through the proxy */
#define TERN_CTX_SLOTS 0x800u       /**< internal: irregular placement, spans are found by a table (state block) */
#define TERN_CTX_STRICT 0x1000u     /**< internal: TERN_STRICT_RELEASE=1, sources are released at system scope */

/** A device stream: a cudaStream_t on the CUDA device; NULL is the default stream. */
typedef void *tern_stream_t;

struct tern_state_dev;
struct tern_ring_dev;

/**
 * The device context: what a kernel needs to communicate, passed to it by value. Fill it with tern_ctx(&ctx) on the host.
 * It holds only what never changes between tern_init and tern_finalize, so a context captured in a graph stays valid for
 * the life of the runtime. Treat the fields as private.
 */
typedef struct tern_ctx {
    uint32_t generation;               /* of the runtime that filled it; 0 is never valid */
    uint32_t flags;                    /* TERN_RELEASED, TERN_CTX_* */
    int32_t my_pe, n_pes;
    int32_t near_first, near_count;    /* load/store peers: near_count PEs from near_first on, unless TERN_CTX_SLOTS is set */
    char *heap;                        /* own span */
    uint64_t stride;                   /* distance between the spans of one PE and the next */
    struct tern_state_dev *state;      /* changing state, device memory */
    uint32_t timeout_ms;               /* deadline of user waits; 0 = none */
    uint32_t stage_bytes;              /* tern_ctx_stage: bytes lent, 0 = none */
    void *stage;                       /* tern_ctx_stage: shared memory of the calling block */
    struct tern_ring_dev *rings;       /* TERN_CTX_PROXY: device halves of the rings, thread by thread, */
    char *rings_host;                  /* and their host halves, by device address */
    uint16_t channels, proxy_threads;  /* rings of each thread (a power of two), and threads */
    uint32_t ring_units;
    uint64_t reserved[5];              /* 0 */
} tern_ctx_t;

#define TERN_SLOT_NONE 0xffu /* in the table of slots: no load/store peer */
/** Bytes of a context, which is passed to kernels by value. */
#define TERN_CTX_BYTES 128

/** Identifies a job that has no PMIx launcher; made on one PE by tern_get_unique_id and given to all by the program. */
typedef struct tern_unique_id {
    char data[128];
} tern_unique_id_t;

#ifdef __cplusplus
}
static_assert(sizeof(tern_ctx_t) == TERN_CTX_BYTES, "tern_ctx_t is passed by value to kernels: its size is ABI");
#else
_Static_assert(sizeof(tern_ctx_t) == TERN_CTX_BYTES, "tern_ctx_t is passed by value to kernels: its size is ABI");
#endif
#endif
