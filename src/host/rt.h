/*
 * rt.h - struct tern_rt, from which all state of the runtime hangs, and the interfaces between the host parts:
 *   env.c/log.c      variables, log, last error          init.c     life cycle, context, abort
 *   bootstrap/       PEs' first meeting                  control.c  control plane (thread, sockets, death)
 *   heap*.c/alloc.c  symmetric heap                      peers.c    reachability, windows
 *   ../proxy/proxy.h  operations to PEs out of reach of loads and stores
 *   buffer.c         registered local memory         dump.c     tern_dump and its signal
 *   agree.c          first round of collective calls     equal.c    versions and configurations
 *   ../device/backend.h  the device, one of two builds
 * Calls go one way: init -> heap -> proxy -> peers -> control -> bootstrap; all use env, log. The control thread calls the
 * proxy back with messages and deaths (tern_control_deliver).
 */
#ifndef TERN_HOST_RT_H
#define TERN_HOST_RT_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <tern/detail/state.h>
#include <tern/tern.h>

#include "device/backend.h"
#include "host/env.h"
#include "host/log.h"

/* What a PE publishes before anything else works. Fixed layout: PEs of different builds must be able to tell so. */
struct tern_blob {
    uint32_t magic, bytes;          /* TERN_BLOB_MAGIC, sizeof(struct tern_blob) */
    uint32_t version, abi;          /* tern_version(), TERN_ABI_VERSION */
    uint64_t config;                /* hash of what must be equal on all PEs; see env.h */
    uint64_t boot, netns, pidns;    /* same boot, network and PID namespace = same node */
    int32_t pe, pid;
    uint32_t uid, pad;
    unsigned char cookie[16];       /* random; both sides of a connection prove that they know the other's */
    char socket[64];                /* abstract UNIX socket name, without the leading NUL */
    unsigned char addr[16];         /* TCP: IPv4 (first 4 bytes, family 4) or IPv6 */
    uint16_t family, port;
    uint32_t pad2;
    char host[64];
    struct tern_device_id device;
};
#define TERN_BLOB_MAGIC 0x6e726574u

/* The processes of two blobs can reach each other by UNIX sockets and shared memory; else `why` (may be NULL) tells. */
bool tern_blob_same_node(const struct tern_blob *a, const struct tern_blob *b, const char **why);

/* ---- bootstrap: an allgather of one blob per PE --------------------------------------------------------------------- */
struct tern_bootstrap {
    const char *name;
    /* find out pe and n_pes (rt->pe, rt->n_pes) */
    tern_status_t (*open)(struct tern_rt *rt, const tern_init_attr_t *attr);
    /* collective: publish the own blob; afterwards get() works for every PE */
    tern_status_t (*exchange)(struct tern_rt *rt, const struct tern_blob *own);
    tern_status_t (*get)(struct tern_rt *rt, int pe, struct tern_blob *out);
    /* PEs that are perhaps on this node: a superset, ascending, malloc()ed; decided by the blobs */
    tern_status_t (*local)(struct tern_rt *rt, int **pes, int *count);
    void (*close)(struct tern_rt *rt);
};
extern const struct tern_bootstrap tern_bootstrap_pmix, tern_bootstrap_uid, tern_bootstrap_singleton;
/* choose by attr and TERN_BOOTSTRAP, open; sets rt->bootstrap, rt->pe, rt->n_pes */
tern_status_t tern_bootstrap_open(struct tern_rt *rt, const tern_init_attr_t *attr);

/* ---- control plane ----------------------------------------------------------------------------------------------------- */
/* PEs that take part in a collective control call, ascending; NULL = all PEs. */
struct tern_group {
    const int *pes;
    int count;
    uint32_t id;                    /* equal on all members, unique among live groups; 0 = all PEs */
    uint32_t *seq;                  /* the group's call counter, owned by the group */
};
enum tern_reduce { TERN_REDUCE_MIN, TERN_REDUCE_MAX, TERN_REDUCE_AND, TERN_REDUCE_OR, TERN_REDUCE_SUM };

tern_status_t tern_control_open(struct tern_rt *rt);      /* before exchange: listeners; fills their part of rt->blob */
tern_status_t tern_control_start(struct tern_rt *rt);     /* after exchange: thread, first connections, rt->node_* */
void tern_control_watch(struct tern_rt *rt);              /* rt->state_host is there: mirror the abort word, poll reports */
void tern_control_stop(struct tern_rt *rt);               /* take leave, join, release; undoes open as well */
void tern_control_halt(struct tern_rt *rt);               /* only end the thread: for a process that exits */
/* Collective calls from an application thread; each ends by TERN_TIMEOUT_MS, death of a PE or abort. NULL group = all. */
tern_status_t tern_control_barrier(struct tern_rt *rt, const struct tern_group *group);
tern_status_t tern_control_allreduce(struct tern_rt *rt, const struct tern_group *group, uint64_t *words, int count,
                                     const enum tern_reduce *ops);
tern_status_t tern_control_allgather(struct tern_rt *rt, const struct tern_group *group, const void *in, size_t bytes,
                                     void *out);
/* Send fds to a PE on this node; the receiver takes them in order, tagged. Any thread. */
tern_status_t tern_control_fd_send(struct tern_rt *rt, int pe, uint64_t tag, const int *fds, int count);
tern_status_t tern_control_fd_recv(struct tern_rt *rt, int pe, uint64_t tag, int *fds, int count);
/* Raise job abort: first reason wins, is logged once, flooded to all PEs, wakes all host waits. Any thread. pe: cause or -1 */
void tern_control_abort(struct tern_rt *rt, tern_status_t status, int pe, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Read the device's report now, not at the next tick: what ended kernels left counts for the call that follows them. */
void tern_control_report(struct tern_rt *rt);
/* What a host call returns once the job is aborted: TERN_ERR_PEER_DEAD if a death was the cause, else TERN_ERR_ABORTED. */
tern_status_t tern_abort_status(struct tern_rt *rt);
const struct tern_blob *tern_control_blob(struct tern_rt *rt, int pe);   /* blob of a PE, fetched at first use; NULL: error */
bool tern_control_dead(struct tern_rt *rt, int pe);       /* known to be dead. Any thread. */
/* Send a message to the proxy of a PE (own PE too): in order for each PE, connecting if need be. Any thread. */
#define TERN_MESSAGE_MOST (1 << 20) /* bytes */
tern_status_t tern_control_message(struct tern_rt *rt, int pe, const void *body, size_t bytes);
/* What the control thread calls back, without its lock: messages in order, then the death of their sender. Bodies are lent. */
struct tern_control_calls {
    void (*message)(struct tern_rt *rt, int from, const void *body, size_t bytes);
    void (*dead)(struct tern_rt *rt, int pe);
    void (*dump)(struct tern_rt *rt, const char *why);
};
/* From now on (what has come before too). NULL: no more; on return none is under way. Not by the control thread. */
void tern_control_deliver(struct tern_rt *rt, const struct tern_control_calls *calls);

/* ---- agreement: every host-collective call of the API begins with it --------------------------------------------------- */
/*
 * All PEs make the call that the text names, arguments included ("tern_malloc of 8 bytes"); else every PE gets the same
 * TERN_ERR_MISMATCH, which names PE, call number and both texts, and the next call may be right again. Also a barrier.
 * `able`: false where this PE lacks the host memory to go on, then every PE gets the same TERN_ERR_NO_MEMORY.
 */
tern_status_t tern_agree(struct tern_rt *rt, bool able, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Closes a step that may fail on some PEs: the status and error text of the lowest failed PE on all of them. NULL group = all. */
tern_status_t tern_agree_status(struct tern_rt *rt, const struct tern_group *group, tern_status_t status);

/* Versions and configurations of all PEs are equal; else all return the same TERN_ERR_VERSION, naming PE and difference. */
tern_status_t tern_equal_check(struct tern_rt *rt);

/* ---- peers: who is near, and where its span is mapped ----------------------------------------------------------------- */
struct tern_peer {
    bool same_node, near;           /* near: load/store (hidden from the device by TERN_DISABLE_P2P=1, own PE excepted) */
    bool mapped;                    /* span mapped here, near or not */
    bool atomics;                   /* native atomics by load/store */
    uint8_t slot;                   /* in the window; TERN_SLOT_NONE */
    const char *why;                /* reason of the path, static text (tern_peer_why) */
};
tern_status_t tern_peers_find(struct tern_rt *rt);        /* fills rt->peers from blobs and job-wide agreement */
void tern_peers_close(struct tern_rt *rt);
/* Reason of the path to a PE, static text: for people (reads the PE's blob where it is on another node). */
const char *tern_peer_why(struct tern_rt *rt, int pe);

/* ---- symmetric heap --------------------------------------------------------------------------------------------------- */
struct tern_heap;                                         /* heap.c */
tern_status_t tern_heap_open(struct tern_rt *rt);         /* reserve window, back and map the first internal chunk */
void tern_heap_close(struct tern_rt *rt);
/* Back the internal segment up to `bytes` on the members of `group` (collective among them). */
tern_status_t tern_heap_internal(struct tern_rt *rt, const struct tern_group *group, uint64_t bytes);
void *tern_heap_alloc(struct tern_rt *rt, size_t alignment, size_t bytes, bool zero, const char *call);
tern_status_t tern_heap_free(struct tern_rt *rt, void *ptr);
/* The own span has memory at [offset, offset + bytes). Any thread; true for a chunk before any PE may use it. */
bool tern_heap_holds(struct tern_rt *rt, uint64_t offset, uint64_t bytes);
void tern_heap_stats(struct tern_rt *rt, tern_info_t *info);

struct tern_proxy; /* ../proxy/proxy.h */

/* ---- the runtime -------------------------------------------------------------------------------------------------------- */
struct tern_rt {
    int pe, n_pes;
    int node_pe, node_n_pes;        /* among the PEs of this node */
    int *node_pes;                  /* those PEs, ascending, this one included */
    uint32_t generation;            /* counts inits of the process, from 1 */
    struct tern_env env;
    const struct tern_bootstrap *bootstrap;
    void *bootstrap_state;
    struct tern_blob blob;          /* own */
    struct tern_control *control;
    struct tern_peer *peers;        /* [n_pes] */
    struct tern_heap *heap;
    struct tern_device *device;     /* backend's state */
    struct tern_device_id device_id;
    int sharers;                    /* PEs of this node on this device */

    uint64_t collectives;           /* tern_agree calls so far */

    /* geometry of the span, job-wide equal but for addresses and near_*; filled by tern_peers_find and tern_heap_open */
    char *span;                     /* own */
    char *window;                   /* spans of all mapped PEs, slot by slot */
    uint64_t stride, user_offset, user_max;
    uint64_t user_backed, internal_backed; /* bytes of both heaps that are backed by memory; tern_state_publish tells kernels */
    int near_first, near_count;
    uint8_t *slots_dev;             /* device copy of the slot table, or NULL where placement is regular */
    bool amo_direct;                /* atomics and ADD signals for near PEs go by load/store */
    const char *amo_why;            /* static text */
    bool needs_proxy;               /* some PE of the job has a far peer, or atomics are not direct: equal on all PEs */
    struct tern_proxy *proxy;       /* NULL where the job needs none */
    struct tern_buffers *buffers;   /* buffer.c */

    struct tern_state_host *state_host;         /* host address */
    struct tern_state_host *state_host_dev;     /* the same memory by its device address */
    struct tern_state_dev *state_dev;           /* device address */

    _Atomic uint64_t abort;                     /* abort word (state.h); mirrored in state_host->abort */
    char abort_reason[512];                     /* written once, before `abort` */
};

/* Public call that the calling thread is in, for messages. */
extern _Thread_local const char *tern_call_name;
/* The running runtime, or NULL. */
extern struct tern_rt *tern_rt_current;
/* Every public call begins with this: the runtime if it runs and is not aborted, else NULL and *status (error recorded). */
struct tern_rt *tern_rt_enter(const char *call, tern_status_t *status);
/* Watch for the signal of TERN_DUMP_SIGNAL, between start and stop of the control plane. */
tern_status_t tern_dump_open(struct tern_rt *rt);
void tern_dump_close(struct tern_rt *rt);
/* The proxy's rings and operations to the log. Any thread. */
void tern_dump_write(struct tern_rt *rt, const char *why);
/* Registered local memory: its list. */
tern_status_t tern_buffers_open(struct tern_rt *rt);
void tern_buffers_close(struct tern_rt *rt);
void tern_info_fill(struct tern_rt *rt, tern_info_t *info);
/* Store generation, sizes, time-outs of the state block in device memory (application's thread, runtime's stream). */
tern_status_t tern_state_publish(struct tern_rt *rt);

#endif
