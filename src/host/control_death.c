/*
 * control_death.c - death of PEs (found here, or told by others), job abort and its flood, reports of the device. What
 * is known spreads over all connections: those of the node and a tree over all PEs that heals around the dead.
 */
#include "host/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/fork.h"

enum { ON_DEATH_ABORT, ON_DEATH_MASK }; /* choices of TERN_ON_DEATH in env.h */

void tern_death_watch(struct tern_control *c, int pe)
{
    struct tern_link *link = &c->links[pe];
    if (link->pid.fd >= 0 || !link->same_node || link->blob->pidns != c->rt->blob.pidns)
        return;
    tern_fork_begin();
    link->pid.fd = tern_fork_end((int)syscall(SYS_pidfd_open, link->blob->pid, 0));
    if (link->pid.fd < 0) {
        if (errno == ESRCH)
            tern_death_found(c, pe, "its process is gone");
        return; /* else an old kernel, or out of descriptors: the socket tells */
    }
    tern_control_watch_fd(c, &link->pid, EPOLLIN);
}

static void watch_end(struct tern_control *c, struct tern_link *link)
{
    if (link->pid.fd < 0)
        return;
    epoll_ctl(c->epoll, EPOLL_CTL_DEL, link->pid.fd, NULL);
    tern_fork_close(link->pid.fd);
    link->pid.fd = -1;
}

/* Parent in the flooding tree among the living, those whose way to the root is dead under the lowest one; -1: none. */
static int tree_parent(const struct tern_control *c, int pe, int lowest)
{
    int up = pe;
    while (up > 0) {
        up = (up - 1) / TERN_TREE_ARITY;
        if (!c->links[up].dead)
            return up;
    }
    return pe == lowest ? -1 : lowest;
}

/*
 * Close the gap in the tree that a death left. Both ends of each new edge connect: an orphan that does not answer its
 * new parent has died too, unseen.
 */
static void tree_heal(struct tern_control *c)
{
    int lowest = 0;
    while (c->links[lowest].dead) /* ends: this PE lives */
        lowest++;
    for (int pe = 0; pe < c->rt->n_pes; pe++) {
        int parent = c->links[pe].dead ? -1 : tree_parent(c, pe, lowest);
        if (pe == c->rt->pe && parent >= 0)
            tern_conn_get(c, parent);
        else if (parent == c->rt->pe)
            tern_conn_get(c, pe);
    }
}

void tern_deaths_tell(struct tern_control *c, int to)
{
    for (int pe = 0; c->deaths && pe < c->rt->n_pes; pe++) {
        struct tern_frame_abort head = {TERN_ERR_PEER_DEAD, pe};
        char text[200], name[160];
        if (!c->links[pe].dead)
            continue;
        snprintf(text, sizeof text, "%s died", tern_link_name(c, pe, name, sizeof name));
        tern_conn_send(c, to, TERN_FRAME_DEAD, &head, sizeof head, text, strlen(text), NULL, 0);
    }
}

/* A PE is dead, by own observation or by the word of PE `from`. */
static void death_mark(struct tern_control *c, int pe, int from, const char *text)
{
    struct tern_link *link = &c->links[pe];
    struct tern_frame_abort head = {TERN_ERR_PEER_DEAD, pe};

    link->dead = true;
    c->deaths++;
    tern_tell_death(c, pe);
    watch_end(c, link);
    if (link->conn)
        tern_conn_close(c, link->conn);
    if (c->rt->env.on_death == ON_DEATH_ABORT) {
        tern_abort_raise(c, TERN_ERR_PEER_DEAD, pe, from, text);
        return;
    }
    tern_log(TERN_LOG_WARN, "%s; the job goes on without it (TERN_ON_DEATH=mask)", text);
    tern_conn_flood(c, from, TERN_FRAME_DEAD, &head, sizeof head, text, strlen(text));
    tree_heal(c);
    pthread_cond_broadcast(&c->cond);
}

void tern_death_found(struct tern_control *c, int pe, const char *how)
{
    struct tern_link *link = &c->links[pe];
    char text[384], name[160];
    if (link->left) {
        watch_end(c, link);
        return;
    }
    if (link->dead)
        return;
    snprintf(text, sizeof text, "%s died: %s", tern_link_name(c, pe, name, sizeof name), how);
    death_mark(c, pe, -1, text);
}

/* Head and text of an abort or death frame; false if it is not one. */
static bool told_parse(struct tern_control *c, const char *body, size_t bytes, struct tern_frame_abort *head,
                       char *text, size_t text_bytes)
{
    if (bytes < sizeof *head)
        return false;
    memcpy(head, body, sizeof *head);
    snprintf(text, text_bytes, "%.*s", (int)(bytes - sizeof *head), body + sizeof *head);
    return head->pe >= -1 && head->pe < c->rt->n_pes;
}

void tern_death_told(struct tern_control *c, int from, const char *body, size_t bytes)
{
    struct tern_frame_abort head;
    char text[384];
    if (told_parse(c, body, bytes, &head, text, sizeof text) && head.pe >= 0 && head.pe != c->rt->pe &&
        !c->links[head.pe].dead)
        death_mark(c, head.pe, from, text);
}

/* ---- abort ------------------------------------------------------------------------------------------------------- */

tern_status_t tern_abort_status(struct tern_rt *rt)
{
    uint64_t word = atomic_load(&rt->abort);
    if (!word)
        return TERN_OK;
    return TERN_ABORT_STATUS(word) == TERN_ERR_PEER_DEAD ? TERN_ERR_PEER_DEAD : TERN_ERR_ABORTED;
}

void tern_abort_raise(struct tern_control *c, tern_status_t status, int pe, int except, const char *text)
{
    struct tern_rt *rt = c->rt;
    struct tern_frame_abort head = {(int32_t)status, pe};
    uint64_t word = TERN_ABORT_WORD(rt->generation, pe, status);
    if (atomic_load(&rt->abort))
        return;
    snprintf(rt->abort_reason, sizeof rt->abort_reason, "%s", text);
    atomic_store(&rt->abort, word);
    if (c->state)
        __atomic_store_n(&c->state->abort, word, __ATOMIC_RELEASE);
    tern_log(TERN_LOG_ERROR, "job aborted (%s): %s", tern_status_name(status), rt->abort_reason);
    tern_conn_flood(c, except, TERN_FRAME_ABORT, &head, sizeof head, rt->abort_reason, strlen(rt->abort_reason));
    pthread_cond_broadcast(&c->cond);
}

void tern_abort_told(struct tern_control *c, int from, const char *body, size_t bytes)
{
    struct tern_frame_abort head;
    char text[sizeof c->rt->abort_reason];
    if (told_parse(c, body, bytes, &head, text, sizeof text))
        tern_abort_raise(c, (tern_status_t)head.status, head.pe, from, text);
}

void tern_control_abort(struct tern_rt *rt, tern_status_t status, int pe, const char *format, ...)
{
    char text[sizeof rt->abort_reason];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&rt->control->lock);
    tern_abort_raise(rt->control, status, pe, -1, text);
    pthread_mutex_unlock(&rt->control->lock);
}

/* ---- reports of the device --------------------------------------------------------------------------------------- */

static const char *const call_names[] = {
#define CALL_NAME(name) "tern_" #name,
    TERN_CALL_TABLE(CALL_NAME)
#undef CALL_NAME
};

static void report_text(struct tern_control *c, const struct tern_report *report, char *text, size_t bytes)
{
    const char *call = report->call < TERN_CALL_COUNT ? call_names[report->call] : "a device call";
    char why[256];
    switch (report->why) {
    case TERN_WHY_PE:
        snprintf(why, sizeof why, "PE %d is not one of the %d PEs", report->pe, c->rt->n_pes);
        break;
    case TERN_WHY_ADDRESS:
        snprintf(why, sizeof why, "%llu bytes at %#llx (for PE %d) are not in the symmetric heap",
                 (unsigned long long)report->bytes, (unsigned long long)report->address, report->pe);
        break;
    case TERN_WHY_ALIGN:
        snprintf(why, sizeof why, "address %#llx (for PE %d) is not aligned to %llu bytes",
                 (unsigned long long)report->address, report->pe, (unsigned long long)report->value);
        break;
    case TERN_WHY_STALE:
        snprintf(why, sizeof why, "the context belongs to a runtime that has ended; fill it again by tern_ctx()");
        break;
    case TERN_WHY_OP:
        snprintf(why, sizeof why, "operator %lld is unknown", (long long)report->value);
        break;
    case TERN_WHY_STAGE:
        snprintf(why, sizeof why, "the stage of %llu bytes at %#llx is not shared memory, not aligned or too small",
                 (unsigned long long)report->bytes, (unsigned long long)report->address);
        break;
    case TERN_WHY_BUFFER:
        snprintf(why, sizeof why,
                 "%llu bytes of local memory at %#llx are neither symmetric nor registered, and PE %d is reached through the "
                 "proxy; register them by tern_buffer_register",
                 (unsigned long long)report->bytes, (unsigned long long)report->address, report->pe);
        break;
    case TERN_WHY_TIMEOUT:
        snprintf(why, sizeof why,
                 "waited more than %lld ms for PE %d (value %llu); raise TERN_DEVICE_TIMEOUT_MS if the work takes "
                 "that long",
                 (long long)c->rt->env.device_timeout_ms, report->pe, (unsigned long long)report->value);
        break;
    default:
        snprintf(why, sizeof why, "PE %d, address %#llx, %llu bytes", report->pe, (unsigned long long)report->address,
                 (unsigned long long)report->bytes);
        break;
    }
    snprintf(text, bytes, "%s in a kernel of PE %d (block %u, thread %u): %s", call, c->rt->pe, report->block,
             report->thread, why);
}

void tern_report_poll(struct tern_control *c)
{
    struct tern_report report;
    char text[sizeof c->rt->abort_reason];
    uint32_t kind;
    tern_status_t status = TERN_ERR_INVALID;

    if (!c->state || c->reported)
        return;
    kind = __atomic_load_n(&c->state->report.kind, __ATOMIC_ACQUIRE);
    if (kind == TERN_REPORT_NONE)
        return;
    c->reported = true;
    memcpy(&report, &c->state->report, sizeof report);
    report_text(c, &report, text, sizeof text);
    if (kind == TERN_REPORT_TIMEOUT)
        status = TERN_ERR_TIMEOUT;
    else if (report.why == TERN_WHY_STALE)
        status = TERN_ERR_STALE;
    tern_abort_raise(c, status, c->rt->pe, -1, text);
}

void tern_control_report(struct tern_rt *rt)
{
    struct tern_control *c = rt->control;
    struct tern_state_host *state = rt->state_host;
    if (!state || __atomic_load_n(&state->report.kind, __ATOMIC_RELAXED) == TERN_REPORT_NONE || atomic_load(&rt->abort))
        return;
    pthread_mutex_lock(&c->lock);
    tern_report_poll(c);
    pthread_mutex_unlock(&c->lock);
}
