/* control_fd.c - descriptors that PEs of a node hand each other over the control plane: received items, the two calls.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/bootstrap/bootstrap.h"
#include "host/control.h"

void tern_fd_item_free(struct tern_fd_item *item, bool close_fds)
{
    for (int i = 0; close_fds && i < item->n_fds; i++)
        close(item->fds[i]);
    free(item);
}

void tern_fds_received(struct tern_control *c, struct tern_conn *conn, const char *body, size_t bytes, int n_fds)
{
    struct tern_frame_fd head;
    struct tern_fd_item **tail = &c->links[conn->source.pe].items;
    struct tern_fd_item *item = malloc(sizeof *item + sizeof(int) * (size_t)n_fds);
    int have = conn->n_fds < n_fds ? conn->n_fds : n_fds;

    if (!item || bytes != sizeof head) {
        free(item);
        return;
    }
    memcpy(&head, body, sizeof head);
    *item = (struct tern_fd_item){NULL, head.tag, have, have < n_fds || conn->fds_lost};
    memcpy(item->fds, conn->fds, sizeof(int) * (size_t)have);
    memmove(conn->fds, conn->fds + have, sizeof(int) * (size_t)(conn->n_fds - have));
    conn->n_fds -= have;
    conn->fds_lost = false;
    while (*tail)
        tail = &(*tail)->next;
    *tail = item;
    pthread_cond_broadcast(&c->cond);
}

tern_status_t tern_control_fd_send(struct tern_rt *rt, int pe, uint64_t tag, const int *fds, int count)
{
    struct tern_control *c = rt->control;
    struct tern_frame_fd head = {tag};
    char name[128];
    tern_status_t status = TERN_OK;

    pthread_mutex_lock(&c->lock);
    tern_link_name(c, pe, name, sizeof name);
    if (count < 1 || count > TERN_MAX_FDS || !c->links[pe].same_node)
        status = tern_error(TERN_ERR_INVALID, "cannot send %d descriptors to %s: 1 to %d, to a PE of this node", count,
                            name, TERN_MAX_FDS);
    else if (atomic_load(&rt->abort))
        status = tern_error(tern_abort_status(rt), "the job was aborted: %s; call tern_finalize", rt->abort_reason);
    else if (c->links[pe].dead)
        status = tern_error(TERN_ERR_PEER_DEAD, "cannot send descriptors to %s: it is dead", name);
    else if (!tern_conn_send(c, pe, TERN_FRAME_FD, &head, sizeof head, NULL, 0, fds, count))
        status = tern_error(TERN_ERR_SYSTEM, "cannot send %d descriptors to %s: %s; raise the limit on open files",
                            count, name, strerror(errno));
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* First item with the tag, taken out of the list. */
static struct tern_fd_item *fd_item_take(struct tern_link *link, uint64_t tag)
{
    for (struct tern_fd_item **p = &link->items; *p; p = &(*p)->next) {
        if ((*p)->tag == tag) {
            struct tern_fd_item *item = *p;
            *p = item->next;
            return item;
        }
    }
    return NULL;
}

tern_status_t tern_control_fd_recv(struct tern_rt *rt, int pe, uint64_t tag, int *fds, int count)
{
    struct tern_control *c = rt->control;
    uint64_t deadline = tern_now_ns() + (uint64_t)rt->env.timeout_ms * 1000000u;
    struct tern_fd_item *item;
    char name[128], text[256];
    tern_status_t status = TERN_OK;

    pthread_mutex_lock(&c->lock);
    tern_link_name(c, pe, name, sizeof name);
    while (!(item = fd_item_take(&c->links[pe], tag))) {
        if (atomic_load(&rt->abort)) {
            status = tern_error(tern_abort_status(rt), "the job was aborted: %s; call tern_finalize", rt->abort_reason);
            break;
        }
        if (c->links[pe].dead) {
            status = tern_error(TERN_ERR_PEER_DEAD, "%s died while this PE waited for its memory", name);
            break;
        }
        if (tern_now_ns() >= deadline) {
            snprintf(text, sizeof text,
                     "%s has not sent its memory's descriptors within %lld ms; raise TERN_TIMEOUT_MS", name,
                     (long long)rt->env.timeout_ms);
            tern_abort_raise(c, TERN_ERR_TIMEOUT, pe, -1, text);
            status = tern_error(TERN_ERR_TIMEOUT, "%s", text);
            break;
        }
        tern_control_wait(c, deadline);
    }
    if (item) {
        bool good = !item->lost && item->n_fds == count;
        if (good)
            memcpy(fds, item->fds, sizeof(int) * (size_t)count);
        else
            status = tern_error(TERN_ERR_SYSTEM,
                                "%d of %d descriptors from %s were lost on the way; raise the limit on open files",
                                count - item->n_fds, count, name);
        tern_fd_item_free(item, !good);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}
