/*
 * control_conn.c - the control plane's connections: listeners, greetings (both sides prove that they know the other's
 * cookie), frames in and out. A connection that one side needs is made by that side; when both try at once, the
 * one of the higher PE stays.
 */
#include "host/control.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/bootstrap/bootstrap.h"
#include "host/fork.h"
#include "host/net.h"

#define PROTOCOL 1u
#define GREETING_MAGIC 0x6f6c6c65u
#define GREETING_MS 5000
#define RETRY_MS 20
#define MAX_STRANGERS 1024
#define MAX_FRAME (256u << 20)

/* ---- listeners --------------------------------------------------------------------------------------------------- */

static socklen_t unix_address(struct sockaddr_un *un, const char *name)
{
    size_t length = strlen(name);
    memset(un, 0, sizeof *un);
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path + 1, name, length); /* abstract: leading NUL, no file */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static tern_status_t listen_unix(struct tern_control *c)
{
    struct tern_blob *blob = &c->rt->blob;
    struct sockaddr_un un;
    unsigned char name[12];
    size_t used;

    if (tern_random_bytes(name, sizeof name) != TERN_OK)
        return TERN_ERR_SYSTEM;
    used = (size_t)snprintf(blob->socket, sizeof blob->socket, "tern-%d-", (int)blob->pid);
    for (size_t i = 0; i < sizeof name; i++)
        used += (size_t)snprintf(blob->socket + used, sizeof blob->socket - used, "%02x", name[i]);
    tern_fork_begin();
    c->unix_listener.fd = tern_fork_end(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    socklen_t length = unix_address(&un, blob->socket);
    if (c->unix_listener.fd < 0 || bind(c->unix_listener.fd, (struct sockaddr *)&un, length) ||
        listen(c->unix_listener.fd, SOMAXCONN) || !tern_control_watch_fd(c, &c->unix_listener, EPOLLIN))
        return tern_error(TERN_ERR_SYSTEM, "cannot listen on a UNIX socket: %s; raise the limit on open files",
                          strerror(errno));
    return TERN_OK;
}

tern_status_t tern_conn_listen(struct tern_control *c)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct tern_blob *blob = &c->rt->blob;
    struct tern_addr addr[2];
    tern_status_t status = listen_unix(c);
    if (status != TERN_OK)
        return status;
    c->tcp_listener.fd = tern_net_listen(&blob->port);
    if (c->tcp_listener.fd < 0 || !tern_control_watch_fd(c, &c->tcp_listener, EPOLLIN))
        return tern_error(TERN_ERR_SYSTEM, "cannot listen on TCP: %s; raise the limit on open files", strerror(errno));
    tern_net_addresses(addr, 2);
    if (!memcmp(addr[0].byte, mapped, sizeof mapped)) {
        blob->family = 4;
        memcpy(blob->addr, addr[0].byte + 12, 4);
    } else {
        blob->family = 6;
        memcpy(blob->addr, addr[0].byte, 16);
    }
    return TERN_OK;
}

void tern_conn_unlisten(struct tern_control *c, struct tern_source *listener)
{
    if (listener->fd < 0)
        return;
    epoll_ctl(c->epoll, EPOLL_CTL_DEL, listener->fd, NULL);
    tern_fork_close(listener->fd);
    listener->fd = -1;
}

/* ---- making and ending connections ------------------------------------------------------------------------------- */

static struct tern_conn *conn_new(struct tern_control *c, int pe, bool tcp, enum tern_conn_state state)
{
    struct tern_conn *conn = calloc(1, sizeof *conn);
    if (!conn)
        return NULL;
    conn->source = (struct tern_source){TERN_SOURCE_CONN, -1, pe};
    conn->tcp = tcp;
    conn->state = state;
    conn->out_tail = &conn->out;
    conn->heard_ns = conn->sent_ns = tern_now_ns();
    conn->next = c->conns;
    c->conns = conn;
    return conn;
}

static void out_free(struct tern_out *out)
{
    for (int i = 0; i < out->n_fds; i++)
        close(out->fds[i]);
    free(out->fds);
    free(out);
}

static void out_drop(struct tern_conn *conn)
{
    while (conn->out) {
        struct tern_out *out = conn->out;
        conn->out = out->next;
        out_free(out);
    }
    conn->out_tail = &conn->out;
}

/* Close the socket, keep the connection's queue: for another try. */
static void conn_unplug(struct tern_control *c, struct tern_conn *conn)
{
    if (conn->source.fd >= 0) {
        epoll_ctl(c->epoll, EPOLL_CTL_DEL, conn->source.fd, NULL);
        tern_fork_close(conn->source.fd);
        conn->source.fd = -1;
    }
    for (int i = 0; i < conn->n_fds; i++)
        close(conn->fds[i]);
    conn->n_fds = 0;
    conn->in_bytes = 0;
    conn->watch_out = conn->broken = false;
}

void tern_conn_close(struct tern_control *c, struct tern_conn *conn)
{
    if (conn->state == TERN_CONN_DOOMED)
        return;
    if (conn->state == TERN_CONN_ACCEPTED)
        c->strangers--;
    conn_unplug(c, conn);
    out_drop(conn);
    if (conn->source.pe >= 0 && c->links[conn->source.pe].conn == conn)
        c->links[conn->source.pe].conn = NULL;
    conn->state = TERN_CONN_DOOMED;
    pthread_cond_broadcast(&c->cond);
}

void tern_conn_reap(struct tern_control *c, bool all)
{
    struct tern_conn **p = &c->conns;
    while (*p) {
        struct tern_conn *conn = *p;
        if (all)
            tern_conn_close(c, conn);
        if (conn->state == TERN_CONN_DOOMED) {
            *p = conn->next;
            free(conn->in);
            free(conn->fds);
            free(conn);
        } else {
            p = &conn->next;
        }
    }
}

static void retry_later(struct tern_control *c, struct tern_conn *conn, int error)
{
    conn_unplug(c, conn);
    /* an unsent greeting belongs to the old socket */
    if (conn->out && conn->out->greeting) {
        struct tern_out *out = conn->out;
        conn->out = out->next;
        if (!conn->out)
            conn->out_tail = &conn->out;
        out_free(out);
    }
    conn->error = error;
    conn->state = TERN_CONN_CONNECTING;
    conn->retry_ns = tern_now_ns() + RETRY_MS * 1000000ull;
}

static int dial(struct tern_control *c, struct tern_conn *conn)
{
    const struct tern_blob *blob = c->links[conn->source.pe].blob;
    if (conn->tcp) {
        struct tern_addr addr = {{[10] = 0xff, [11] = 0xff}};
        if (blob->family == 4)
            memcpy(addr.byte + 12, blob->addr, 4);
        else
            memcpy(addr.byte, blob->addr, 16);
        return tern_net_connect(&addr, blob->port);
    }
    struct sockaddr_un un;
    socklen_t length = unix_address(&un, blob->socket);
    tern_fork_begin();
    int fd = tern_fork_end(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd >= 0 && connect(fd, (struct sockaddr *)&un, length)) {
        int saved = errno; /* EAGAIN: the listener's queue is full */
        tern_fork_close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static void conn_try(struct tern_control *c, struct tern_conn *conn)
{
    conn->retry_ns = 0;
    conn->source.fd = dial(c, conn);
    if (conn->source.fd < 0) {
        retry_later(c, conn, errno);
        return;
    }
    conn->watch_out = true;
    if (!tern_control_watch_fd(c, &conn->source, EPOLLIN | EPOLLOUT))
        retry_later(c, conn, errno);
}

struct tern_conn *tern_conn_get(struct tern_control *c, int pe)
{
    struct tern_link *link = &c->links[pe];
    if (link->conn || link->dead || link->left)
        return link->conn;
    if (tern_link_load(c, pe) != TERN_OK)
        return NULL;
    struct tern_conn *conn = conn_new(c, pe, !link->same_node, TERN_CONN_CONNECTING);
    if (!conn)
        return NULL;
    link->conn = conn;
    conn->deadline_ns =
        tern_now_ns() + (c->started ? TERN_SILENCE_MS(c->rt) : (uint64_t)c->rt->env.timeout_ms) * 1000000u;
    conn_try(c, conn);
    return conn;
}

/* The socket failed or was closed by the other side. */
static void conn_lost(struct tern_control *c, struct tern_conn *conn, int error)
{
    int pe = conn->source.pe;
    switch (conn->state) {
    case TERN_CONN_CONNECTING:
    case TERN_CONN_GREETING: /* full, not there yet, or it prefers its own connection to this one: the deadline decides
                              */
        retry_later(c, conn, error);
        break;
    case TERN_CONN_UP:
        tern_conn_close(c, conn);
        if (!c->links[pe].left)
            tern_death_found(c, pe, "its connection closed without tern_finalize");
        break;
    case TERN_CONN_ACCEPTED:
    case TERN_CONN_DOOMED:
        tern_conn_close(c, conn);
        break;
    }
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

static void watch_out(struct tern_control *c, struct tern_conn *conn, bool on)
{
    if (conn->watch_out == on)
        return;
    struct epoll_event event = {.events = EPOLLIN | (on ? EPOLLOUT : 0), .data.ptr = &conn->source};
    conn->watch_out = on;
    epoll_ctl(c->epoll, EPOLL_CTL_MOD, conn->source.fd, &event);
}

static ssize_t out_write(struct tern_conn *conn, struct tern_out *out)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * TERN_MAX_FDS)];
    } control;
    struct iovec iov = {out->data + out->sent, out->bytes - out->sent};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (out->n_fds) {
        memset(&control, 0, sizeof control);
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)out->n_fds);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)out->n_fds);
        memcpy(CMSG_DATA(cmsg), out->fds, sizeof(int) * (size_t)out->n_fds);
    }
    return sendmsg(conn->source.fd, &msg, MSG_NOSIGNAL);
}

/* Send what the socket takes. A failed socket is left for the reading side, which sees what the peer said last. */
static void conn_flush(struct tern_control *c, struct tern_conn *conn)
{
    bool progress = false, full = false;
    while (conn->out && !conn->broken && conn->source.fd >= 0 && (conn->state == TERN_CONN_UP || conn->out->greeting)) {
        struct tern_out *out = conn->out;
        ssize_t n = out_write(conn, out);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == ETOOMANYREFS)) {
            full = errno == EAGAIN; /* else too many descriptors under way: the tick tries again */
            break;
        }
        if (n < 0) {
            conn->broken = true;
            out_drop(conn);
            break;
        }
        progress = true;
        for (; out->n_fds; out->n_fds--)
            close(out->fds[out->n_fds - 1]); /* they went with the first byte */
        out->sent += (size_t)n;
        if (out->sent < out->bytes)
            continue;
        conn->out = out->next;
        if (!conn->out)
            conn->out_tail = &conn->out;
        out_free(out);
    }
    if (progress)
        conn->sent_ns = tern_now_ns();
    if (conn->source.fd >= 0 && conn->state != TERN_CONN_CONNECTING)
        watch_out(c, conn, full);
    if (!conn->out)
        pthread_cond_broadcast(&c->cond);
}

static struct tern_out *out_new(enum tern_frame_type type, const void *head, size_t head_bytes, const void *body,
                                size_t body_bytes, const int *fds, int n_fds)
{
    struct tern_frame frame = {(uint32_t)(head_bytes + body_bytes), (uint16_t)type, (uint16_t)n_fds};
    struct tern_out *out = malloc(sizeof *out + sizeof frame + head_bytes + body_bytes);
    if (!out)
        return NULL;
    memset(out, 0, sizeof *out);
    out->bytes = sizeof frame + head_bytes + body_bytes;
    out->greeting = type == TERN_FRAME_HELLO || type == TERN_FRAME_WELCOME;
    memcpy(out->data, &frame, sizeof frame);
    if (head_bytes)
        memcpy(out->data + sizeof frame, head, head_bytes);
    if (body_bytes)
        memcpy(out->data + sizeof frame + head_bytes, body, body_bytes);
    if (n_fds) {
        out->fds = calloc((size_t)n_fds, sizeof *out->fds);
        for (; out->fds && out->n_fds < n_fds; out->n_fds++) {
            out->fds[out->n_fds] = fcntl(fds[out->n_fds], F_DUPFD_CLOEXEC, 0);
            if (out->fds[out->n_fds] < 0)
                break;
        }
        if (out->n_fds < n_fds) {
            out_free(out);
            return NULL;
        }
    }
    return out;
}

static void out_queue(struct tern_control *c, struct tern_conn *conn, struct tern_out *out)
{
    if (conn->broken) { /* its end will be read soon */
        out_free(out);
        return;
    }
    if (out->greeting) {
        out->next = conn->out;
        if (!conn->out)
            conn->out_tail = &out->next;
        conn->out = out;
    } else {
        *conn->out_tail = out;
        conn->out_tail = &out->next;
    }
    conn_flush(c, conn);
}

bool tern_conn_send(struct tern_control *c, int pe, enum tern_frame_type type, const void *head, size_t head_bytes,
                    const void *body, size_t body_bytes, const int *fds, int n_fds)
{
    struct tern_conn *conn = tern_conn_get(c, pe);
    if (!conn)
        return false;
    struct tern_out *out = out_new(type, head, head_bytes, body, body_bytes, fds, n_fds);
    if (!out)
        return false;
    out_queue(c, conn, out);
    return true;
}

void tern_conn_flood(struct tern_control *c, int except, enum tern_frame_type type, const void *head, size_t head_bytes,
                     const void *body, size_t body_bytes)
{
    for (struct tern_conn *conn = c->conns; conn; conn = conn->next) {
        if (conn->state == TERN_CONN_DOOMED || conn->state == TERN_CONN_ACCEPTED || conn->source.pe == except)
            continue;
        struct tern_out *out = out_new(type, head, head_bytes, body, body_bytes, NULL, 0);
        if (out)
            out_queue(c, conn, out);
    }
}

bool tern_conn_flushed(struct tern_control *c)
{
    for (struct tern_conn *conn = c->conns; conn; conn = conn->next) {
        if (conn->state == TERN_CONN_UP && conn->out && !c->links[conn->source.pe].left)
            return false;
    }
    return true;
}

/* ---- greetings --------------------------------------------------------------------------------------------------- */

static void conn_greet(struct tern_control *c, struct tern_conn *conn, enum tern_frame_type type)
{
    struct tern_greeting greeting = {GREETING_MAGIC, PROTOCOL, c->rt->pe, conn->source.pe, {0}};
    memcpy(greeting.cookie, c->links[conn->source.pe].blob->cookie, sizeof greeting.cookie);
    struct tern_out *out = out_new(type, &greeting, sizeof greeting, NULL, 0, NULL, 0);
    if (out)
        out_queue(c, conn, out);
}

/* Does the kernel say the same about the other end of a UNIX socket as its blob? */
static bool credentials_match(struct tern_control *c, struct tern_conn *conn, int pe)
{
    const struct tern_blob *blob = c->links[pe].blob;
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (conn->tcp)
        return true;
    if (getsockopt(conn->source.fd, SOL_SOCKET, SO_PEERCRED, &peer, &length))
        return false;
    return peer.uid == blob->uid && (blob->pidns != c->rt->blob.pidns || peer.pid == blob->pid);
}

static bool greeting_valid(struct tern_control *c, struct tern_conn *conn, const char *body, size_t bytes)
{
    struct tern_greeting greeting;
    unsigned char difference = 0;
    if (bytes != sizeof greeting)
        return false;
    memcpy(&greeting, body, sizeof greeting);
    if (greeting.magic != GREETING_MAGIC || greeting.protocol != PROTOCOL || greeting.to != c->rt->pe ||
        greeting.from < 0 || greeting.from >= c->rt->n_pes || greeting.from == c->rt->pe)
        return false;
    for (size_t i = 0; i < sizeof greeting.cookie; i++)
        difference |= greeting.cookie[i] ^ c->rt->blob.cookie[i];
    if (difference || (conn->source.pe >= 0 && conn->source.pe != greeting.from))
        return false;
    if (tern_link_load(c, greeting.from) != TERN_OK || !credentials_match(c, conn, greeting.from))
        return false;
    conn->source.pe = greeting.from;
    return true;
}

static void conn_is_up(struct tern_control *c, struct tern_conn *conn)
{
    conn->state = TERN_CONN_UP;
    conn->heard_ns = tern_now_ns();
    tern_death_watch(c, conn->source.pe);
    if (atomic_load(&c->rt->abort)) { /* it came too late for the flood */
        uint64_t word = atomic_load(&c->rt->abort);
        struct tern_frame_abort head = {(int32_t)TERN_ABORT_STATUS(word), TERN_ABORT_PE(word)};
        tern_conn_send(c, conn->source.pe, TERN_FRAME_ABORT, &head, sizeof head, c->rt->abort_reason,
                       strlen(c->rt->abort_reason), NULL, 0);
    }
    tern_deaths_tell(c, conn->source.pe);
    conn_flush(c, conn);
    pthread_cond_broadcast(&c->cond);
}

/* An incoming connection says who it is. */
static void conn_hello(struct tern_control *c, struct tern_conn *conn, const char *body, size_t bytes)
{
    if (!greeting_valid(c, conn, body, bytes)) {
        tern_log(TERN_LOG_WARN, "refused a connection to the control socket: wrong greeting, cookie or user");
        tern_conn_close(c, conn);
        return;
    }
    struct tern_link *link = &c->links[conn->source.pe];
    struct tern_conn *mine = link->conn;
    if (link->dead || link->left || (mine && (mine->state == TERN_CONN_UP || c->rt->pe > conn->source.pe))) {
        conn->source.pe = -1;
        tern_conn_close(c, conn);
        return;
    }
    c->strangers--;
    conn->state = TERN_CONN_GREETING; /* no stranger any more, nor up before the WELCOME is queued */
    link->conn = conn;
    if (mine) { /* both tried: the higher PE's stays, with what was queued on this one's */
        struct tern_out *queue = mine->out;
        struct tern_out **tail = mine->out_tail;
        while (queue && queue->greeting) {
            struct tern_out *out = queue;
            queue = out->next;
            out_free(out);
        }
        if (queue) {
            conn->out = queue;
            conn->out_tail = tail;
        }
        mine->out = NULL;
        mine->out_tail = &mine->out;
        tern_conn_close(c, mine);
    }
    conn_greet(c, conn, TERN_FRAME_WELCOME);
    conn_is_up(c, conn);
}

static void conn_welcome(struct tern_control *c, struct tern_conn *conn, const char *body, size_t bytes)
{
    if (greeting_valid(c, conn, body, bytes)) {
        conn_is_up(c, conn);
    } else {
        tern_log(TERN_LOG_WARN, "the control socket of PE %d is not held by that PE", conn->source.pe);
        retry_later(c, conn, EPERM);
    }
}

void tern_conn_accept(struct tern_control *c, struct tern_source *listener)
{
    int on = 1;
    for (int i = 0; i < 64 && listener->fd >= 0; i++) {
        tern_fork_begin();
        int fd = tern_fork_end(accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
                epoll_ctl(c->epoll, EPOLL_CTL_DEL, listener->fd, NULL);
                c->listeners_paused = true;
                tern_log(TERN_LOG_WARN, "cannot accept a control connection: %s; raise the limit on open files",
                         strerror(errno));
            }
            return;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* refused by UNIX sockets, which need it not */
        struct tern_conn *conn = c->strangers < MAX_STRANGERS
                                     ? conn_new(c, -1, listener->kind == TERN_SOURCE_TCP, TERN_CONN_ACCEPTED)
                                     : NULL;
        if (!conn) {
            tern_fork_close(fd);
            return;
        }
        c->strangers++;
        conn->source.fd = fd;
        conn->deadline_ns = tern_now_ns() + GREETING_MS * 1000000ull * (uint64_t)c->rt->env.test_scale;
        if (!tern_control_watch_fd(c, &conn->source, EPOLLIN))
            tern_conn_close(c, conn);
    }
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static void frame_handle(struct tern_control *c, struct tern_conn *conn, const struct tern_frame *frame,
                         const char *body)
{
    int pe = conn->source.pe;
    if (conn->state == TERN_CONN_ACCEPTED && frame->type == TERN_FRAME_HELLO) {
        conn_hello(c, conn, body, frame->bytes);
        return;
    }
    if (conn->state == TERN_CONN_GREETING && frame->type == TERN_FRAME_WELCOME) {
        conn_welcome(c, conn, body, frame->bytes);
        return;
    }
    if (conn->state != TERN_CONN_UP) {
        conn_lost(c, conn, EPROTO);
        return;
    }
    switch (frame->type) {
    case TERN_FRAME_UP:
        tern_coll_up(c, pe, body, frame->bytes);
        break;
    case TERN_FRAME_DOWN:
        tern_coll_down(c, pe, body, frame->bytes);
        break;
    case TERN_FRAME_FD:
        tern_fds_received(c, conn, body, frame->bytes, frame->fds);
        break;
    case TERN_FRAME_ABORT:
        tern_abort_told(c, pe, body, frame->bytes);
        break;
    case TERN_FRAME_DEAD:
        tern_death_told(c, pe, body, frame->bytes);
        break;
    case TERN_FRAME_MESSAGE:
        tern_message_received(c, pe, body, frame->bytes);
        break;
    case TERN_FRAME_BYE:
        c->links[pe].left = true;
        if (c->deaths) /* then PEs leave without waiting for others, which may wait for it */
            tern_tell_death(c, pe);
        pthread_cond_broadcast(&c->cond);
        break;
    default:
        break;
    }
}

/* Bytes that may come now: an unknown caller is given room for a greeting only. */
static size_t frame_limit(const struct tern_conn *conn)
{
    return conn->state == TERN_CONN_UP ? MAX_FRAME : sizeof(struct tern_greeting);
}

/* Take whole frames from the input. False: the connection is gone or another. */
static bool frames_take(struct tern_control *c, struct tern_conn *conn)
{
    size_t at = 0;
    struct tern_frame frame;
    while (conn->in_bytes - at >= sizeof frame) {
        memcpy(&frame, conn->in + at, sizeof frame);
        if (frame.bytes > frame_limit(conn)) {
            conn_lost(c, conn, EPROTO);
            return false;
        }
        if (conn->in_bytes - at < sizeof frame + frame.bytes)
            break;
        frame_handle(c, conn, &frame, conn->in + at + sizeof frame);
        if (conn->source.fd < 0)
            return false;
        at += sizeof frame + frame.bytes;
    }
    memmove(conn->in, conn->in + at, conn->in_bytes - at);
    conn->in_bytes -= at;
    return true;
}

static bool in_room(struct tern_conn *conn)
{
    size_t need = 4096;
    struct tern_frame frame;
    if (conn->in_bytes >= sizeof frame) {
        memcpy(&frame, conn->in, sizeof frame);
        if (frame.bytes + sizeof frame > need)
            need = frame.bytes + sizeof frame;
    }
    if (conn->in_space >= need && conn->in_space > conn->in_bytes)
        return true;
    char *grown = realloc(conn->in, need);
    if (!grown)
        return false;
    conn->in = grown;
    conn->in_space = need;
    return true;
}

static void fds_take(struct tern_conn *conn, struct msghdr *msg)
{
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        int n = (int)((cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int)), *fds = (int *)(void *)CMSG_DATA(cmsg);
        /* a stranger's descriptors are not kept; a welcome may have brought the first ones with it */
        bool keep = conn->state == TERN_CONN_UP || conn->state == TERN_CONN_GREETING;
        int *grown = keep ? realloc(conn->fds, sizeof(int) * (size_t)(conn->n_fds + n)) : NULL;
        if (!grown) {
            for (int i = 0; i < n; i++)
                close(fds[i]);
            conn->fds_lost = true;
            continue;
        }
        conn->fds = grown;
        memcpy(conn->fds + conn->n_fds, fds, sizeof(int) * (size_t)n);
        conn->n_fds += n;
    }
    if (msg->msg_flags & MSG_CTRUNC)
        conn->fds_lost = true;
}

static void conn_read(struct tern_control *c, struct tern_conn *conn)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * TERN_MAX_FDS)];
    } control;
    for (;;) {
        if (!in_room(conn)) {
            conn_lost(c, conn, ENOMEM);
            return;
        }
        struct iovec iov = {conn->in + conn->in_bytes, conn->in_space - conn->in_bytes};
        struct msghdr msg = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
        ssize_t n = recvmsg(conn->source.fd, &msg, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            conn_lost(c, conn, n < 0 ? errno : ECONNRESET);
            return;
        }
        fds_take(conn, &msg);
        conn->heard_ns = tern_now_ns();
        conn->in_bytes += (size_t)n;
        if (!frames_take(c, conn))
            return;
    }
}

void tern_conn_event(struct tern_control *c, struct tern_conn *conn, uint32_t events)
{
    if (conn->state == TERN_CONN_DOOMED || conn->source.fd < 0)
        return;
    if (conn->state == TERN_CONN_CONNECTING) {
        int error = 0;
        socklen_t length = sizeof error;
        getsockopt(conn->source.fd, SOL_SOCKET, SO_ERROR, &error, &length);
        if (error) {
            conn_lost(c, conn, error);
            return;
        }
        if (!(events & EPOLLOUT))
            return;
        conn->state = TERN_CONN_GREETING;
        conn_greet(c, conn, TERN_FRAME_HELLO);
    } else if (events & EPOLLOUT) {
        conn_flush(c, conn);
    }
    if (conn->source.fd >= 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        conn_read(c, conn);
}

static void conn_overdue(struct tern_control *c, struct tern_conn *conn)
{
    char text[256], name[128];
    int pe = conn->source.pe;
    if (conn->state == TERN_CONN_ACCEPTED) {
        tern_conn_close(c, conn);
        return;
    }
    if (c->started) { /* it was there at init */
        snprintf(text, sizeof text, "it cannot be reached (%s)", conn->error ? strerror(conn->error) : "no answer");
        tern_conn_close(c, conn);
        tern_death_found(c, pe, text);
        return;
    }
    snprintf(text, sizeof text,
             "no control connection with %s within %lld ms (%s); see the network between the nodes, or raise "
             "TERN_TIMEOUT_MS",
             tern_link_name(c, pe, name, sizeof name), (long long)c->rt->env.timeout_ms,
             conn->error ? strerror(conn->error) : "no answer");
    tern_conn_close(c, conn);
    tern_abort_raise(c, TERN_ERR_TIMEOUT, pe, -1, text);
}

void tern_conn_tick(struct tern_control *c, uint64_t now, bool stalled)
{
    uint64_t beat = TERN_HEARTBEAT_MS * 1000000ull;
    uint64_t silence = TERN_SILENCE_MS(c->rt) * 1000000u;
    for (struct tern_conn *conn = c->conns; conn; conn = conn->next) {
        if (conn->state == TERN_CONN_DOOMED)
            continue;
        if (conn->state != TERN_CONN_UP) {
            if (now >= conn->deadline_ns)
                conn_overdue(c, conn);
            else if (conn->retry_ns && now >= conn->retry_ns)
                conn_try(c, conn);
            continue;
        }
        if (conn->out)
            conn_flush(c, conn);
        if (!conn->tcp)
            continue;
        if (stalled)
            conn->heard_ns = now;
        if (now - conn->sent_ns >= beat)
            tern_conn_send(c, conn->source.pe, TERN_FRAME_PING, NULL, 0, NULL, 0, NULL, 0);
        if (now - conn->heard_ns >= silence && !c->links[conn->source.pe].left) {
            int pe = conn->source.pe;
            tern_conn_close(c, conn);
            tern_death_found(c, pe, "no heartbeat over the network");
        }
    }
}
