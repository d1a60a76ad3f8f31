/*
 * control.c - the control plane's life and its thread. The thread sleeps in epoll, reads from all sockets, moves
 * collective calls on, watches for deaths and for reports of the device. It makes no device call. One lock guards
 * everything; it is never held across a wait.
 */
#include "host/control.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "host/bootstrap/bootstrap.h"
#include "host/fork.h"

#define STOP_FLUSH_MS 5000

bool tern_control_watch_fd(struct tern_control *c, struct tern_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    return !epoll_ctl(c->epoll, EPOLL_CTL_ADD, source->fd, &event);
}

void tern_control_wait(struct tern_control *c, uint64_t deadline_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(deadline_ns / 1000000000u), .tv_nsec = (long)(deadline_ns % 1000000000u)};
    pthread_cond_timedwait(&c->cond, &c->lock, &ts);
}

/* ---- blobs ------------------------------------------------------------------------------------------------------- */

static tern_status_t blob_check(const struct tern_blob *blob, int pe)
{
    if (blob->magic != TERN_BLOB_MAGIC)
        return tern_error(TERN_ERR_VERSION,
                          "PE %d published what this library does not understand; use one library version "
                          "on all PEs",
                          pe);
    if (blob->bytes != sizeof *blob)
        return tern_error(TERN_ERR_VERSION,
                          "PE %d has library version %u.%u.%u, this PE %d.%d.%d, and they cannot talk; use "
                          "one version on all PEs",
                          pe, blob->version / 10000, blob->version / 100 % 100, blob->version % 100, TERN_VERSION_MAJOR,
                          TERN_VERSION_MINOR, TERN_VERSION_PATCH);
    if (blob->pe != pe)
        return tern_error(TERN_ERR_BOOTSTRAP, "PE %d published as PE %d; the launcher's numbers are inconsistent", pe,
                          blob->pe);
    return TERN_OK;
}

tern_status_t tern_link_load(struct tern_control *c, int pe)
{
    struct tern_link *link = &c->links[pe];
    tern_status_t status;
    if (link->blob)
        return TERN_OK;
    struct tern_blob *blob = malloc(sizeof *blob);
    if (!blob)
        return tern_error(TERN_ERR_NO_MEMORY, "no memory for the address of PE %d; free some", pe);
    status = c->rt->bootstrap->get(c->rt, pe, blob);
    if (status == TERN_OK)
        status = blob_check(blob, pe);
    if (status != TERN_OK) {
        free(blob);
        return status;
    }
    blob->host[sizeof blob->host - 1] = '\0';
    blob->socket[sizeof blob->socket - 1] = '\0';
    link->blob = blob;
    return TERN_OK;
}

const struct tern_blob *tern_control_blob(struct tern_rt *rt, int pe)
{
    struct tern_control *c = rt->control;
    pthread_mutex_lock(&c->lock);
    tern_link_load(c, pe);
    const struct tern_blob *blob = c->links[pe].blob;
    pthread_mutex_unlock(&c->lock);
    return blob;
}

bool tern_control_dead(struct tern_rt *rt, int pe)
{
    struct tern_control *c = rt->control;
    pthread_mutex_lock(&c->lock);
    bool dead = c->links[pe].dead;
    pthread_mutex_unlock(&c->lock);
    return dead;
}

const char *tern_link_name(struct tern_control *c, int pe, char *buf, size_t bytes)
{
    const struct tern_blob *blob = pe >= 0 && pe < c->rt->n_pes ? c->links[pe].blob : NULL;
    if (blob)
        snprintf(buf, bytes, "PE %d (process %d on %s)", pe, (int)blob->pid, blob->host);
    else
        snprintf(buf, bytes, "PE %d", pe);
    return buf;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void tick(struct tern_control *c)
{
    uint64_t expirations, now = tern_now_ns();
    /* after a stop of this process itself the others' silence means nothing */
    bool stalled = now - c->tick_ns > (uint64_t)TERN_HEARTBEAT_MS * 1000000u;
    ssize_t n = read(c->timer.fd, &expirations, sizeof expirations);
    (void)n;
    c->tick_ns = now;
    if (c->listeners_paused) {
        c->listeners_paused = false;
        if (c->unix_listener.fd >= 0)
            tern_control_watch_fd(c, &c->unix_listener, EPOLLIN);
        if (c->tcp_listener.fd >= 0)
            tern_control_watch_fd(c, &c->tcp_listener, EPOLLIN);
    }
    tern_report_poll(c);
    tern_coll_tick(c, now);
    tern_conn_tick(c, now, stalled);
}

static void handle(struct tern_control *c, struct tern_source *source, uint32_t events)
{
    uint64_t count;
    ssize_t n;
    switch (source->kind) {
    case TERN_SOURCE_WAKE:
        n = read(source->fd, &count, sizeof count);
        (void)n;
        break;
    case TERN_SOURCE_UNIX:
    case TERN_SOURCE_TCP:
        tern_conn_accept(c, source);
        break;
    case TERN_SOURCE_CONN:
        tern_conn_event(c, (struct tern_conn *)source, events);
        break;
    case TERN_SOURCE_PID:
        if (source->fd >= 0 && c->links[source->pe].conn) /* it may have taken leave before it ended */
            tern_conn_event(c, c->links[source->pe].conn, EPOLLIN);
        if (source->fd >= 0)
            tern_death_found(c, source->pe, "its process ended without tern_finalize");
        break;
    case TERN_SOURCE_DUMP:
        n = read(source->fd, &count, sizeof count);
        (void)n;
        c->tell_dump = true;
        break;
    case TERN_SOURCE_TIMER:
        break;
    }
}

static void *control_thread(void *arg)
{
    struct tern_control *c = arg;
    struct epoll_event events[64];
    bool stop = false, due;

    pthread_setname_np(pthread_self(), "tern-control");
    while (!stop) {
        bool timer = false;
        int n = epoll_wait(c->epoll, events, 64, -1);
        pthread_mutex_lock(&c->lock);
        for (int i = 0; i < n; i++) {
            struct tern_source *source = events[i].data.ptr;
            handle(c, source, events[i].events);
            timer |= source->kind == TERN_SOURCE_TIMER;
        }
        if (timer) /* last: what has been heard counts before deadlines */
            tick(c);
        tern_conn_reap(c, false);
        stop = c->stop;
        due = tern_tell_due(c);
        pthread_mutex_unlock(&c->lock);
        if (due)
            tern_tell(c);
    }
    return NULL;
}

static tern_status_t thread_start(struct tern_control *c)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's handlers run on the program's threads */
    int error = pthread_create(&c->thread, NULL, control_thread, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return tern_error(TERN_ERR_SYSTEM, "cannot start the control thread: %s; raise the limit on processes",
                          strerror(error));
    c->running = true;
    return TERN_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static tern_status_t sources_open(struct tern_control *c)
{
    struct itimerspec period = {{0, TERN_TICK_MS * 1000000l}, {0, TERN_TICK_MS * 1000000l}};
    tern_fork_begin();
    c->epoll = tern_fork_end(epoll_create1(EPOLL_CLOEXEC));
    tern_fork_begin();
    c->wake.fd = tern_fork_end(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    tern_fork_begin();
    c->timer.fd = tern_fork_end(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (c->epoll < 0 || c->wake.fd < 0 || c->timer.fd < 0 || timerfd_settime(c->timer.fd, 0, &period, NULL) ||
        !tern_control_watch_fd(c, &c->wake, EPOLLIN) || !tern_control_watch_fd(c, &c->timer, EPOLLIN))
        return tern_error(TERN_ERR_SYSTEM, "cannot set up the control thread: %s; raise the limit on open files",
                          strerror(errno));
    return TERN_OK;
}

tern_status_t tern_control_open(struct tern_rt *rt)
{
    struct tern_control *c = calloc(1, sizeof *c);
    pthread_condattr_t attr;
    tern_status_t status;

    if (!c)
        return tern_error(TERN_ERR_NO_MEMORY, "no memory for the control plane; free some");
    c->rt = rt;
    c->epoll = -1;
    c->wake = (struct tern_source){TERN_SOURCE_WAKE, -1, -1};
    c->timer = (struct tern_source){TERN_SOURCE_TIMER, -1, -1};
    c->unix_listener = (struct tern_source){TERN_SOURCE_UNIX, -1, -1};
    c->tcp_listener = (struct tern_source){TERN_SOURCE_TCP, -1, -1};
    c->dump = (struct tern_source){TERN_SOURCE_DUMP, -1, -1};
    c->letters_tail = &c->letters;
    c->tick_ns = tern_now_ns();
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->cond, &attr);
    pthread_condattr_destroy(&attr);
    rt->control = c;

    c->links = calloc((size_t)rt->n_pes, sizeof *c->links);
    if (!c->links) {
        status = tern_error(TERN_ERR_NO_MEMORY, "no memory for %d PEs; free some", rt->n_pes);
        goto err_stop;
    }
    for (int pe = 0; pe < rt->n_pes; pe++)
        c->links[pe].pid = (struct tern_source){TERN_SOURCE_PID, -1, pe};
    status = sources_open(c);
    if (status == TERN_OK && rt->n_pes > 1)
        status = tern_conn_listen(c);
    if (status != TERN_OK)
        goto err_stop;
    return TERN_OK;
err_stop:
    tern_control_stop(rt);
    return status;
}

/* Who shares this node: the bootstrap's hint, decided by the blobs. */
static tern_status_t node_find(struct tern_control *c)
{
    struct tern_rt *rt = c->rt;
    int *pes, count, kept = 0;
    tern_status_t status = rt->bootstrap->local(rt, &pes, &count);
    if (status != TERN_OK)
        return status;
    for (int i = 0; i < count; i++) {
        status = tern_link_load(c, pes[i]);
        if (status != TERN_OK) {
            free(pes);
            return status;
        }
        if (!tern_blob_same_node(&rt->blob, c->links[pes[i]].blob, NULL))
            continue;
        if (pes[i] == rt->pe)
            rt->node_pe = kept;
        c->links[pes[i]].same_node = true;
        pes[kept++] = pes[i];
    }
    rt->node_pes = pes;
    rt->node_n_pes = kept;
    return TERN_OK;
}

static bool tree_neighbour(int a, int b)
{
    return a < b ? (b - 1) / TERN_TREE_ARITY == a : a > b && (a - 1) / TERN_TREE_ARITY == b;
}

/* A connection with this PE is made at init. */
static bool link_wanted(const struct tern_control *c, int pe)
{
    return pe != c->rt->pe && (c->links[pe].same_node || tree_neighbour(c->rt->pe, pe));
}

static bool link_up(const struct tern_control *c, int pe)
{
    return c->links[pe].conn && c->links[pe].conn->state == TERN_CONN_UP;
}

static tern_status_t links_wait(struct tern_control *c)
{
    struct tern_rt *rt = c->rt;
    uint64_t deadline = tern_now_ns() + (uint64_t)rt->env.timeout_ms * 1000000u;
    int pe = 0;
    for (;;) {
        while (pe < rt->n_pes && (!link_wanted(c, pe) || link_up(c, pe)))
            pe++;
        if (pe == rt->n_pes)
            return TERN_OK;
        if (atomic_load(&rt->abort))
            return tern_error((tern_status_t)TERN_ABORT_STATUS(atomic_load(&rt->abort)), "tern_init: %s",
                              rt->abort_reason);
        if (c->links[pe].dead)
            return tern_error(TERN_ERR_PEER_DEAD, "tern_init: PE %d died; see its own messages", pe);
        if (tern_now_ns() >= deadline) {
            char name[128];
            return tern_error(TERN_ERR_TIMEOUT,
                              "tern_init: no connection with %s after %lld ms; see whether it runs, or raise "
                              "TERN_TIMEOUT_MS",
                              tern_link_name(c, pe, name, sizeof name), (long long)rt->env.timeout_ms);
        }
        tern_control_wait(c, deadline);
    }
}

tern_status_t tern_control_start(struct tern_rt *rt)
{
    struct tern_control *c = rt->control;
    tern_status_t status;

    c->links[rt->pe].blob = &rt->blob;
    status = node_find(c);
    for (int pe = 0; pe < rt->n_pes && status == TERN_OK; pe++) {
        if (link_wanted(c, pe))
            status = tern_link_load(c, pe);
    }
    if (status == TERN_OK)
        status = thread_start(c);
    if (status != TERN_OK)
        return status;
    pthread_mutex_lock(&c->lock);
    for (int pe = 0; pe < rt->n_pes; pe++) {
        if (!link_wanted(c, pe))
            continue;
        tern_death_watch(c, pe);
        if (pe < rt->pe) /* the higher one connects */
            tern_conn_get(c, pe);
    }
    status = links_wait(c);
    c->started = status == TERN_OK;
    if (status == TERN_OK && rt->node_n_pes == rt->n_pes)
        tern_conn_unlisten(c, &c->tcp_listener); /* nobody will come that way */
    pthread_mutex_unlock(&c->lock);
    return status;
}

void tern_control_watch(struct tern_rt *rt)
{
    struct tern_control *c = rt->control;
    pthread_mutex_lock(&c->lock);
    c->state = rt->state_host;
    if (c->state)
        __atomic_store_n(&c->state->abort, atomic_load(&rt->abort), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&c->lock);
}

void tern_control_halt(struct tern_rt *rt)
{
    struct tern_control *c = rt->control;
    uint64_t one = 1;
    if (!c || !c->running)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_mutex_unlock(&c->lock);
    ssize_t n = write(c->wake.fd, &one, sizeof one);
    (void)n;
    pthread_join(c->thread, NULL);
    c->running = false;
}

void tern_control_stop(struct tern_rt *rt)
{
    struct tern_control *c = rt->control;
    if (!c)
        return;
    if (c->running) {
        pthread_mutex_lock(&c->lock);
        c->state = NULL;
        uint64_t deadline = tern_now_ns() + STOP_FLUSH_MS * 1000000ull;
        tern_conn_flood(c, -1, TERN_FRAME_BYE, NULL, 0, NULL, 0);
        while (!tern_conn_flushed(c) && tern_now_ns() < deadline)
            tern_control_wait(c, deadline);
        pthread_mutex_unlock(&c->lock);
    }
    tern_control_halt(rt);
    tern_conn_reap(c, true);
    tern_coll_free(c);
    tern_message_free(c);
    for (int pe = 0; c->links && pe < rt->n_pes; pe++) {
        struct tern_link *link = &c->links[pe];
        tern_fork_close(link->pid.fd);
        if (link->blob != &rt->blob)
            free(link->blob);
        while (link->items) {
            struct tern_fd_item *item = link->items;
            link->items = item->next;
            tern_fd_item_free(item, true);
        }
    }
    tern_fork_close(c->unix_listener.fd);
    tern_fork_close(c->tcp_listener.fd);
    tern_fork_close(c->timer.fd);
    tern_fork_close(c->dump.fd);
    tern_fork_close(c->wake.fd);
    tern_fork_close(c->epoll);
    pthread_cond_destroy(&c->cond);
    pthread_mutex_destroy(&c->lock);
    free(c->links);
    free(c);
    free(rt->node_pes);
    rt->node_pes = NULL;
    rt->control = NULL;
}
