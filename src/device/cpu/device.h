/*
 * device.h - the CPU device: streams of operations, and the OS threads that carry them out. One per process; it needs no
 * runtime. Shared by stream.c (streams, events, what is ready), worker.c (threads, residency), launch.c (kernels, memory,
 * errors), graph.c and backend.c.
 */
#ifndef TERN_CPU_DEVICE_H
#define TERN_CPU_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <tern/types.h>
#include <tern/detail/cpu_abi.h>

#include "device/cpu/block.h"

/* Same values as CUDA's, see cpu_runtime.h, which is C++. */
enum {
    CPU_OK = 0,
    CPU_INVALID_VALUE = 1,
    CPU_NO_MEMORY = 2,
    CPU_INVALID_CONFIGURATION = 9,
    CPU_INVALID_FUNCTION = 98,
    CPU_INVALID_DEVICE = 101,
    CPU_INVALID_HANDLE = 400,
    CPU_NOT_READY = 600,
    CPU_LAUNCH_FAILURE = 719,
    CPU_CAPTURE_UNSUPPORTED = 900,
    CPU_CAPTURE_INVALIDATED = 901,
    CPU_CAPTURE_UNMATCHED = 903,
    CPU_CAPTURE_UNJOINED = 904
};

enum cpu_op_kind { CPU_OP_KERNEL, CPU_OP_COPY, CPU_OP_FILL, CPU_OP_RECORD, CPU_OP_WAIT };

/* An operation in a stream. Allocated with `arg_bytes` of argument copies behind it. */
struct cpu_op {
    struct cpu_op *next;
    enum cpu_op_kind kind;
    uint64_t seq;                       /* order of all operations of the process */
    struct tern_cpu_stream *stream;
    const tern_cpu_kernel_t *kernel;    /* kernel */
    tern_cpu_dim_t grid, block;
    size_t smem;
    uint64_t blocks, started, ended;
    void **args;                        /* into the bytes behind the operation */
    size_t arg_bytes;
    void *dst;                          /* copy, fill */
    const void *src;
    size_t bytes;
    int value;
    bool running;
    struct tern_cpu_event *event;       /* record, wait: holds a reference */
    uint64_t version;
};

struct tern_cpu_stream {
    struct tern_cpu_stream *next;
    struct cpu_op *head, *tail;         /* head: carried out now, or the next */
    bool blocking;                      /* orders itself with the default stream */
    bool destroyed;                     /* goes away when empty */
    struct tern_cpu_graph *capture;     /* what is given goes there instead */
    uint64_t captured;                  /* operations captured from this stream since another stream waited for it */
};

struct tern_cpu_event {
    unsigned references;                /* the user's and one per operation */
    uint64_t recorded, done;            /* versions: last record given, last record reached */
    uint64_t ns;                        /* when that was */
    struct tern_cpu_graph *capture;     /* recorded in a capture: of this graph, */
    struct tern_cpu_stream *from;       /* from this stream, */
    uint64_t captured;                  /* when so many of its operations were there */
};

/* A captured graph; executable graphs are copies. */
struct tern_cpu_graph {
    struct cpu_op *head, *tail;
    struct tern_cpu_event *ended;       /* executable: the last launch; one runs after the other, in whatever streams */
    struct tern_cpu_stream *origin;     /* while it is captured */
    bool invalid;
};

/* An OS thread that runs blocks, copies and fills. */
struct cpu_worker {
    struct cpu_worker *next;            /* idle */
    pthread_cond_t wake;
    struct cpu_op *op;                  /* what to do next, */
    uint64_t index;                     /* and which block of it */
    struct block *block;
    bool resident;                      /* runs a block now */
};

struct cpu_device {
    pthread_mutex_t lock;
    pthread_cond_t progress;            /* an operation ended or an event was reached */
    unsigned waiters;
    uint64_t seq;
    struct tern_cpu_stream *streams;    /* all; the default stream is the first */
    struct tern_cpu_stream standard;
    struct cpu_worker *idle, **workers;
    unsigned worker_count, worker_room;
    unsigned sms, threads_free, blocks_free;
    unsigned resident, allowed;         /* blocks that run now; how many may, for want of need, see worker.c */
    _Atomic bool held;                  /* others could be resident too */
    uint64_t ended;                     /* blocks, copies and fills so far */
    uint64_t abort_at;                  /* when starvation was reported to the runtime; 0 = not yet */
    int error;                          /* sticky */
    char fault[512];                    /* its sentence */
};
extern struct cpu_device cpu_device;
#define CPU_THREADS_PER_SM 2048u
#define CPU_BLOCKS_PER_SM 32u

/* stream.c; those that end in _locked are called with the lock held */
void cpu_lock(void);
void cpu_unlock(void);
struct tern_cpu_stream *cpu_stream(struct tern_cpu_stream *handle);
struct cpu_op *cpu_op_new(enum cpu_op_kind kind, size_t arg_bytes);
struct cpu_op *cpu_op_copy(const struct cpu_op *op);
void cpu_op_free(struct cpu_op *op);                    /* with the lock held */
struct cpu_op *cpu_op_event(enum cpu_op_kind kind, struct tern_cpu_event *event);
void cpu_event_release(struct tern_cpu_event *event);
/* Give `op` to a stream, or to the graph that it is captured into. Takes the operation. */
int cpu_submit(struct tern_cpu_stream *stream, struct cpu_op *op);
void cpu_submit_locked(struct tern_cpu_stream *stream, struct cpu_op *op);
/* Start whatever is ready. */
void cpu_dispatch_locked(void);
void cpu_op_ended_locked(struct cpu_op *op);
bool cpu_ready_locked(const struct tern_cpu_stream *stream);
/* Wait for what was given to `stream` so far (NULL: to all), and return the sticky error. */
int cpu_wait(struct tern_cpu_stream *stream);
bool cpu_idle(const struct tern_cpu_stream *stream);
int cpu_remember(int error);

/* worker.c */
/* A resident thread for a block of `op` (or for a copy); false if there is no room now. */
bool cpu_worker_start_locked(struct cpu_op *op, uint64_t index);
/* A runtime starts: forget the failure of an earlier one if nothing runs. Returns the number of multiprocessors. */
int cpu_device_open(void);

/* graph.c */
int cpu_capture_add_locked(struct tern_cpu_stream *stream, struct cpu_op *op);

#endif
