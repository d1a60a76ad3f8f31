/*
 * control.h - inside of the control plane, shared by control.c (life cycle, thread), control_conn.c (sockets),
 * control_coll.c (collective calls), control_message.c (messages, what the proxy is told) and control_death.c (death,
 * abort, reports). All state of one runtime hangs from
 * struct tern_control and is guarded by its lock; functions here are called with the lock held unless they say
 * otherwise.
 */
#ifndef TERN_HOST_CONTROL_H
#define TERN_HOST_CONTROL_H

#include <stdio.h>

#include "host/rt.h"

#define TERN_TREE_ARITY 16
#define TERN_TICK_MS 50        /* reports, deadlines, retries */
#define TERN_HEARTBEAT_MS 1000 /* TCP only; 3 missed (x TERN_TEST_SCALE) are a death */
#define TERN_SILENCE_MS(rt) (3u * TERN_HEARTBEAT_MS * (uint64_t)(rt)->env.test_scale)
#define TERN_CALL_BYTES 32
#define TERN_MAX_FDS 64 /* in one frame */

/* Frames on a connection: header, body. Greetings never change their layout: they tell different versions apart. */
enum tern_frame_type {
    TERN_FRAME_HELLO = 1, /* connecting side: struct tern_greeting with the cookie of the other side */
    TERN_FRAME_WELCOME,   /* accepting side: the same back */
    TERN_FRAME_UP,        /* collective call: struct tern_frame_up, payload */
    TERN_FRAME_DOWN,      /* its result: struct tern_frame_down, payload */
    TERN_FRAME_FD,        /* struct tern_frame_fd; the descriptors come with it */
    TERN_FRAME_ABORT,     /* struct tern_frame_abort, text */
    TERN_FRAME_DEAD,      /* the same: a PE died, the job goes on */
    TERN_FRAME_PING,
    TERN_FRAME_BYE, /* the sender leaves in order: its closed socket is no death */
    TERN_FRAME_MESSAGE /* for the proxy */
};

struct tern_frame {
    uint32_t bytes; /* of the body */
    uint16_t type, fds;
};

struct tern_greeting {
    uint32_t magic, protocol;
    int32_t from, to;
    unsigned char cookie[16];
};

struct tern_frame_up {
    uint32_t group, seq;
    uint32_t kind, members, bytes, ops; /* must be equal on all members */
    int32_t status;                     /* not TERN_OK: the payload is the sentence */
    char call[TERN_CALL_BYTES];         /* public call the PE is in */
};

struct tern_frame_down {
    uint32_t group, seq;
    int32_t status;
    uint32_t pad;
};

struct tern_frame_fd {
    uint64_t tag;
};

struct tern_frame_abort {
    int32_t status, pe;
};

/* What an epoll event belongs to. */
enum tern_source_kind {
    TERN_SOURCE_WAKE,
    TERN_SOURCE_TIMER,
    TERN_SOURCE_UNIX,
    TERN_SOURCE_TCP,
    TERN_SOURCE_CONN,
    TERN_SOURCE_PID,
    TERN_SOURCE_DUMP
};
struct tern_source {
    enum tern_source_kind kind;
    int fd, pe;
};

enum tern_conn_state {
    TERN_CONN_CONNECTING, /* ours; on its way, or waiting for the next try (fd < 0) */
    TERN_CONN_GREETING,   /* ours; HELLO sent */
    TERN_CONN_ACCEPTED,   /* theirs; nothing known yet */
    TERN_CONN_UP,
    TERN_CONN_DOOMED /* closed; freed at the end of the thread's turn */
};

struct tern_out { /* a frame on its way out */
    struct tern_out *next;
    size_t bytes, sent;
    bool greeting;
    int *fds, n_fds;
    char data[];
};

struct tern_conn {
    struct tern_source source; /* first: events point here. source.pe: the other side, -1 while not known */
    struct tern_conn *next;
    enum tern_conn_state state;
    bool tcp, watch_out, broken;
    uint64_t deadline_ns, retry_ns, heard_ns, sent_ns;
    struct tern_out *out, **out_tail;
    char *in;
    size_t in_bytes, in_space;
    int *fds, n_fds; /* received, not yet claimed by a frame */
    bool fds_lost;
    int error; /* of the last try to connect */
};

struct tern_fd_item { /* descriptors received, waiting for tern_control_fd_recv */
    struct tern_fd_item *next;
    uint64_t tag;
    int n_fds;
    bool lost;
    int fds[];
};

struct tern_link { /* what is known of one PE */
    struct tern_conn *conn;
    struct tern_blob *blob;
    struct tern_source pid; /* pidfd of a process of this PID namespace, fd -1 = none */
    bool same_node, dead, left;
    bool tell_death; /* the proxy has not been told yet */
    struct tern_fd_item *items;
};

struct tern_coll;
struct tern_letter;

struct tern_control {
    struct tern_rt *rt;
    pthread_mutex_t lock;
    pthread_cond_t cond; /* anything an application thread may wait for */
    pthread_t thread;
    bool running, stop;
    bool started; /* the first connections have been made */
    int epoll;
    struct tern_source wake, timer, unix_listener, tcp_listener;
    bool listeners_paused;   /* out of descriptors: try again at the next tick */
    struct tern_link *links; /* [n_pes] */
    struct tern_conn *conns;
    int strangers; /* accepted, not greeted yet */
    int deaths;
    struct tern_coll *colls;
    uint32_t seq_all; /* call counter of the group of all PEs */
    struct tern_source dump;                /* the signal of TERN_DUMP_SIGNAL has come */
    const struct tern_control_calls *calls; /* NULL: nobody is told; what comes is kept */
    bool telling;                           /* the control thread is in one of them */
    struct tern_letter *letters, **letters_tail;
    int tell_deaths;
    bool tell_dump;
    struct tern_state_host *state;
    bool reported;
    uint64_t tick_ns;
};

/* control.c */
bool tern_control_watch_fd(struct tern_control *c, struct tern_source *source, uint32_t events);
void tern_control_wait(struct tern_control *c, uint64_t deadline_ns);                /* on cond, at most until then */
tern_status_t tern_link_load(struct tern_control *c, int pe);                        /* links[pe].blob */
const char *tern_link_name(struct tern_control *c, int pe, char *buf, size_t bytes); /* "PE 3 (process 17 on host)" */

/* control_conn.c */
tern_status_t tern_conn_listen(struct tern_control *c); /* no lock: before the thread is there */
void tern_conn_unlisten(struct tern_control *c, struct tern_source *listener);
void tern_conn_accept(struct tern_control *c, struct tern_source *listener);
/* The connection with a PE, made if there is none yet. NULL: dead, left, or no memory. */
struct tern_conn *tern_conn_get(struct tern_control *c, int pe);
/* Queue a frame (the descriptors are duplicated) and send what the socket takes. False: no memory or no connection. */
bool tern_conn_send(struct tern_control *c, int pe, enum tern_frame_type type, const void *head, size_t head_bytes,
                    const void *body, size_t body_bytes, const int *fds, int n_fds);
void tern_conn_flood(struct tern_control *c, int except, enum tern_frame_type type, const void *head, size_t head_bytes,
                     const void *body, size_t body_bytes);
void tern_conn_event(struct tern_control *c, struct tern_conn *conn, uint32_t events);
void tern_conn_tick(struct tern_control *c, uint64_t now, bool stalled);
void tern_conn_close(struct tern_control *c, struct tern_conn *conn);
void tern_conn_reap(struct tern_control *c, bool all);
bool tern_conn_flushed(struct tern_control *c);

/* control_fd.c */
void tern_fds_received(struct tern_control *c, struct tern_conn *conn, const char *body, size_t bytes, int n_fds);
void tern_fd_item_free(struct tern_fd_item *item, bool close_fds);

/* control_message.c */
void tern_message_received(struct tern_control *c, int pe, const char *body, size_t bytes);
void tern_message_free(struct tern_control *c);
void tern_tell_death(struct tern_control *c, int pe);
bool tern_tell_due(const struct tern_control *c);
void tern_tell(struct tern_control *c); /* control thread, no lock */

/* control_coll.c */
void tern_coll_up(struct tern_control *c, int pe, const char *body, size_t bytes);
void tern_coll_down(struct tern_control *c, int pe, const char *body, size_t bytes);
void tern_coll_tick(struct tern_control *c, uint64_t now);
void tern_coll_free(struct tern_control *c);

/* control_death.c */
void tern_death_watch(struct tern_control *c, int pe); /* pidfd */
void tern_death_found(struct tern_control *c, int pe, const char *how);
void tern_death_told(struct tern_control *c, int from, const char *body, size_t bytes);
void tern_abort_raise(struct tern_control *c, tern_status_t status, int pe, int except, const char *text);
void tern_abort_told(struct tern_control *c, int from, const char *body, size_t bytes);
void tern_report_poll(struct tern_control *c);
void tern_deaths_tell(struct tern_control *c, int to); /* all that are known, to a new neighbour */

#endif
