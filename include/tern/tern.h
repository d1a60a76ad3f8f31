/*
 * tern/tern.h - the host API, plain C. Unless a comment says otherwise a call may be made by any thread, but "collective"
 * calls must be made by every PE in the same order, one at a time. No call exits or aborts the process: failures come back
 * as a status, and tern_last_error() has a sentence with cause and remedy.
 */
#ifndef TERN_TERN_H
#define TERN_TERN_H

#include <tern/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TERN_API __attribute__((visibility("default")))
#else
#define TERN_API
#endif

/* ---- life cycle ---------------------------------------------------------------------------------------------------- */

/** Arguments of tern_init_attr. Set `size` to sizeof(tern_init_attr_t) and all that you do not use to 0 (`gpu` to -1). */
typedef struct tern_init_attr {
    size_t size;
    const tern_unique_id_t *id; /**< job identity from tern_get_unique_id; NULL: PMIx, or one PE without a launcher */
    int pe, n_pes;              /**< with `id`: number of this PE and of all PEs */
    int gpu;                    /**< device ordinal; -1: the thread's current device, else TERN_GPU, else by local rank */
} tern_init_attr_t;

/**
 * Start the runtime: collective over all PEs of the job, which a PMIx launcher (srun --mpi=pmix, mpirun) has started; one
 * PE where there is no launcher. Takes the calling thread's current GPU, else TERN_GPU, else local rank mod visible GPUs.
 * @return TERN_ERR_STATE if a runtime is running; TERN_ERR_LAUNCHER, _BOOTSTRAP, _CONFIG, _VERSION, _NO_DEVICE,
 *         _UNREACHABLE, _TIMEOUT (TERN_TIMEOUT_MS). After a failure nothing is left behind and tern_init may be called again.
 */
TERN_API tern_status_t tern_init(void);

/** tern_init with choices; for programs that have a launcher of their own (MPI, torchrun), by way of a unique id. */
TERN_API tern_status_t tern_init_attr(const tern_init_attr_t *attr);

/**
 * Make the identity of a job, on one PE, before tern_init_attr; the program hands it to all others (MPI_Bcast, a file, …).
 * The process that made it serves the meeting, so it must itself be one of the PEs. Each id starts one runtime.
 */
TERN_API tern_status_t tern_get_unique_id(tern_unique_id_t *id);

/**
 * End the runtime: collective; waits (bounded) for all PEs, stops the runtime's threads, releases memory. Symmetric memory
 * that was not freed is released and counted in the log. After a job abort it is local and does not wait. All kernels that
 * use a context of this runtime must have ended. tern_init may be called again.
 */
TERN_API tern_status_t tern_finalize(void);

/** 1 between a successful tern_init and tern_finalize, else 0. */
TERN_API int tern_initialized(void);

/* ---- who and where ------------------------------------------------------------------------------------------------- */

/** Number of this PE, of all PEs, of this PE among those of its node, and of PEs on its node; -1 without a runtime. */
TERN_API int tern_my_pe(void);
TERN_API int tern_n_pes(void);
TERN_API int tern_node_pe(void);
TERN_API int tern_node_n_pes(void);

/** Library version as major * 10000 + minor * 100 + patch. Needs no runtime. */
TERN_API int tern_version(void);

/** "cpu" or "cuda": the device this library was built for. Needs no runtime. */
TERN_API const char *tern_device_name(void);

/** Facts of the running runtime. Set `size` before the call; a field the library does not know stays as it was. */
typedef struct tern_info {
    size_t size;
    int pe, n_pes, node_pe, node_n_pes;
    int near_pes;                /**< PEs reached by load/store, this one included */
    int gpu;                     /**< device ordinal */
    int sms;                     /**< multiprocessors of the device */
    int sharers;                 /**< PEs on this device, this one included: a kernel that waits for them gets sms / sharers */
    uint64_t heap_bytes;         /**< user heap backed by memory now */
    uint64_t heap_used;          /**< user heap given out by tern_malloc */
    uint64_t heap_max;           /**< limit of the user heap (job-wide minimum) */
    uint64_t runtime_bytes;      /**< device memory of the runtime itself */
    char device[96];             /**< device name */
    char bootstrap[32];          /**< "pmix", "uid" or "singleton" */
} tern_info_t;

/** Fill `info`. TERN_ERR_STATE without a runtime. */
TERN_API tern_status_t tern_get_info(tern_info_t *info);

/**
 * What was found and chosen, and why (launcher, device, each peer's path and its reason, heap, variables in effect), as
 * text or as one JSON object, written to `buf` as by snprintf. @return bytes of the whole description.
 */
TERN_API size_t tern_describe(char *buf, size_t bytes, int json);

/** The table of TERN_* variables (name, type, default, value in effect, meaning), as text (0), JSON (1) or Markdown (2). */
TERN_API size_t tern_describe_env(char *buf, size_t bytes, int format);

/* ---- errors -------------------------------------------------------------------------------------------------------- */

/** Name of a status ("TERN_ERR_TIMEOUT"), and its meaning. Never NULL. */
TERN_API const char *tern_status_name(tern_status_t status);
TERN_API const char *tern_status_text(tern_status_t status);

/** Cause and remedy of the calling thread's last failed call; "" if none. Valid until the thread's next failure. */
TERN_API const char *tern_last_error(void);

/** Why the job was aborted (who, what, where), "" if it was not. Valid until the next tern_init. */
TERN_API const char *tern_abort_reason(void);

/**
 * Abort the job: every PE's host calls and device waits end with TERN_ERR_ABORTED, and tern_abort_reason() tells `reason`
 * and this PE everywhere. The processes go on: each calls tern_finalize, and may call tern_init again. Not collective.
 */
TERN_API tern_status_t tern_abort(const char *reason);

/**
 * Write to the log what the proxy of this PE is at: its rings, and the last and the oldest incomplete operation of each PE.
 * For a job that hangs; TERN_DUMP_SIGNAL names a signal that does the same. Works after a job abort, too. Local.
 */
TERN_API tern_status_t tern_dump(void);

/** TERN_OK, or TERN_ERR_ABORTED / TERN_ERR_PEER_DEAD once the job is aborted: what a loop of the program may poll. */
TERN_API tern_status_t tern_status(void);

/* ---- symmetric heap ------------------------------------------------------------------------------------------------ */

/**
 * Symmetric memory: collective, same arguments on all PEs, which get the same offset. Device memory on the CUDA device:
 * the host must not dereference it. Aligned to 256 bytes (tern_align: to `alignment`, a power of two up to 256 MiB, if
 * that is more). Contents are undefined; tern_calloc returns zeroes, visible to all PEs. A size of 0 gives NULL without an error.
 * @return NULL on failure, on every PE alike: TERN_ERR_MISMATCH names the PE, the call and both sizes; TERN_ERR_NO_MEMORY
 *         tells limit and use. The heap grows on demand and never moves; growth may run beside kernels that communicate.
 */
TERN_API void *tern_malloc(size_t bytes);
TERN_API void *tern_calloc(size_t count, size_t bytes);
TERN_API void *tern_align(size_t alignment, size_t bytes);

/**
 * Give symmetric memory back: collective, the same allocation on all PEs. NULL is allowed. Operations on it must have
 * completed (a barrier is part of the call). @return TERN_ERR_INVALID for what tern_malloc did not return.
 */
TERN_API tern_status_t tern_free(void *ptr);

/**
 * Address by which this PE's device reaches `addr` of PE `pe` with loads and stores; NULL if there is none, or `addr` is
 * not symmetric. On the CPU device the host may use it too.
 */
TERN_API void *tern_ptr(const void *addr, int pe);

/**
 * Make `bytes` at `ptr` (device memory, or host memory that the device reaches) usable as local source or destination of
 * operations that go through the proxy; the symmetric heap needs it not, nor do load/store peers, nor values of 1, 2, 4 and
 * 8 bytes. Local; at most 256 buffers at a time. Without a proxy in the job only the arguments are checked.
 * @return TERN_ERR_INVALID for NULL, no bytes, symmetric memory, and what overlaps a registered buffer.
 */
TERN_API tern_status_t tern_buffer_register(void *ptr, size_t bytes);

/** Undo tern_buffer_register, by the same `ptr`: operations on it must have completed (tern_quiet). Local. */
TERN_API tern_status_t tern_buffer_unregister(void *ptr);

/* ---- context, launch, order ---------------------------------------------------------------------------------------- */

/** Behind the macro tern_ctx(): fills a context; TERN_ERR_VERSION if it was compiled with other headers. */
TERN_API tern_status_t tern_ctx_fill(tern_ctx_t *ctx, size_t size, uint32_t abi);

/** tern_status_t tern_ctx(tern_ctx_t *ctx): fill the context that kernels take by value. Local. */
#define tern_ctx(ctx) tern_ctx_fill((ctx), sizeof *(ctx), TERN_ABI_VERSION)

/** Behind tern_launch of tern/device.h: record why a launch failed (the driver's name and text); TERN_ERR_DEVICE. */
TERN_API tern_status_t tern_launch_failed(const char *name, const char *text);

/** Order and completion for what this PE's host and finished kernels did: quiet, then all PEs meet. Collective. */
TERN_API tern_status_t tern_barrier_all(void);

/** Complete what this PE's host and finished kernels put. Local. */
TERN_API tern_status_t tern_quiet(void);

/* ---- stream-ordered operations: run after what is in the stream before them; capturable in a CUDA graph -------------- */

/** Copy `bytes` from local `src` to `dst` of PE `pe`; complete at the target after tern_quiet_on_stream or a barrier. */
TERN_API tern_status_t tern_put_on_stream(void *dst, const void *src, size_t bytes, int pe, tern_stream_t stream);
/** Copy `bytes` from `src` of PE `pe` to local `dst`; the data is there for what follows in the stream. */
TERN_API tern_status_t tern_get_on_stream(void *dst, const void *src, size_t bytes, int pe, tern_stream_t stream);
/** Put, then apply `value` to the signal word `sig` of PE `pe` by `op` (TERN_SIGNAL_*): data is visible before the signal. */
TERN_API tern_status_t tern_put_signal_on_stream(void *dst, const void *src, size_t bytes, uint64_t *sig, uint64_t value,
                                                 int op, int pe, tern_stream_t stream);
/** Apply a signal; ordered after what is in the stream before it. */
TERN_API tern_status_t tern_signal_op_on_stream(uint64_t *sig, uint64_t value, int op, int pe, tern_stream_t stream);
/** The stream waits until `*sig CMP value` on this PE (TERN_CMP_*); a wait has no deadline, but ends on job abort. */
TERN_API tern_status_t tern_signal_wait_until_on_stream(uint64_t *sig, int cmp, uint64_t value, tern_stream_t stream);
/** Complete at their targets all operations of this PE that come before it in the stream. */
TERN_API tern_status_t tern_quiet_on_stream(tern_stream_t stream);
/** All PEs meet in stream order; barrier completes this PE's operations first, sync only makes its own stores visible. */
TERN_API tern_status_t tern_barrier_all_on_stream(tern_stream_t stream);
TERN_API tern_status_t tern_sync_all_on_stream(tern_stream_t stream);

#ifdef __cplusplus
}
#endif
#endif
