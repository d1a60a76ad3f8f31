/*
 * verbs_conn.c - queue pairs. Whoever first needs one makes it and says hello over the control plane; the other side
 * makes its own, brings it to where it receives, and says so; then the first does the same. Posting begins when the
 * other side has said that it receives. Both may begin at once: each says hello, and again when it is ready.
 */
#include "proxy/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/log.h"

/*
 * 4.096 us << 20 are four seconds, 7 times half a minute: a dead peer is told by the control plane long before.
 * Soft-RoCE (6.1) stands still for good after a retry with atomics under way, and a slow guest made one within half a
 * second.
 */
#define TIMEOUT 20
#define RETRIES 7
#define RNR_TIMER 12
#define INLINE_BYTES 64

static struct ibv_qp *qp_make(struct verbs_net *net, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = net->depth,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = INLINE_BYTES},
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = (uint8_t)net->nic.port,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
    };
    struct ibv_qp *qp = verbs.ibv_create_qp(net->pd, &init);
    int error;

    if (!qp) {
        tern_error(TERN_ERR_TRANSPORT, "verbs: %s makes no queue pair: %s; %s", net->nic.device, strerror(errno),
                   errno == ENOMEM ? "raise the limit of locked memory (ulimit -l unlimited)" : "its log may tell why");
        return NULL;
    }
    net->inline_bytes = init.cap.max_inline_data;
    error = verbs.ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error) {
        tern_error(TERN_ERR_TRANSPORT, "verbs: a queue pair of %s cannot be initialised: %s", net->nic.device,
                   strerror(error));
        verbs.ibv_destroy_qp(qp);
        return NULL;
    }
    return qp;
}

int verbs_qp_connect(struct verbs_net *net, struct ibv_qp *qp, uint32_t own_psn, const struct verbs_address *to,
                     uint32_t to_qp, uint32_t to_psn)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)net->address.mtu,
        .dest_qp_num = to_qp,
        .rq_psn = to_psn,
        .max_dest_rd_atomic = (uint8_t)net->reads,
        .min_rnr_timer = RNR_TIMER,
        .ah_attr = {.dlid = to->lid, .port_num = (uint8_t)net->nic.port, .is_global = to->ethernet},
    };
    int error;

    if (to->ethernet) {
        memcpy(attr.ah_attr.grh.dgid.raw, to->gid, sizeof to->gid);
        attr.ah_attr.grh.sgid_index = (uint8_t)net->nic.gid_index;
        attr.ah_attr.grh.hop_limit = 64;
    }
    error = verbs.ibv_modify_qp(qp, &attr,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error)
        return error;
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                .timeout = TIMEOUT,
                                .retry_cnt = RETRIES,
                                .rnr_retry = RETRIES,
                                .sq_psn = own_psn,
                                .max_rd_atomic = (uint8_t)net->reads};
    return verbs.ibv_modify_qp(qp, &attr,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                   IBV_QP_MAX_QP_RD_ATOMIC);
}

tern_status_t verbs_self_open(struct tern_proxy_thread *t)
{
    struct verbs_net *net = t->px->net;
    struct verbs_thread *vt = t->net;
    int error;

    vt->self_cq = verbs.ibv_create_cq(net->context, VERBS_SELF_CQE, NULL, NULL, 0);
    if (!vt->self_cq)
        return tern_error(TERN_ERR_TRANSPORT, "verbs: completion queue of %s: %s", net->nic.device, strerror(errno));
    vt->self = qp_make(net, vt->self_cq);
    if (!vt->self)
        return TERN_ERR_TRANSPORT;
    error = verbs_qp_connect(net, vt->self, 0, &net->address, vt->self->qp_num, 0);
    if (error)
        return tern_error(TERN_ERR_TRANSPORT, "verbs: %s cannot connect to itself by GID %d: %s; see TERN_GID_INDEX",
                          net->nic.device, net->nic.gid_index, strerror(error));
    return TERN_OK;
}

/* ---- far PEs ----------------------------------------------------------------------------------------------------- */

static bool hello_send(struct verbs_dest *d, bool ready)
{
    struct tern_rt *rt = d->t->px->rt;
    const struct verbs_hello hello = {d->qp->qp_num, d->psn, ready, 0};
    return tern_proxy_net_send(rt, d->dest->pe, &hello, sizeof hello) == TERN_OK || atomic_load(&rt->abort);
}

static bool dest_make(struct verbs_dest *d)
{
    struct verbs_net *net = d->t->px->net;
    struct verbs_thread *vt = d->t->net;

    if (!d->requests)
        d->requests = calloc(net->depth, sizeof *d->requests);
    if (!d->requests) {
        tern_error(TERN_ERR_NO_MEMORY, "no host memory for a queue pair");
        return false;
    }
    d->qp = qp_make(net, vt->cq);
    d->psn = (uint32_t)(d->dest->pe * 7919 + 17) & 0xffffff;
    return d->qp != NULL;
}

bool verbs_connect(struct verbs_dest *d)
{
    if (d->state != VERBS_NONE)
        return d->state != VERBS_BROKEN;
    d->state = VERBS_BROKEN;
    if (!dest_make(d) || !hello_send(d, false))
        return false;
    d->state = VERBS_ASKED;
    return true;
}

/* In this order: the other side posts as soon as it has read that this one is ready. */
static bool dest_answer(struct verbs_dest *d, const struct verbs_hello *hello)
{
    struct tern_proxy *px = d->t->px;
    struct verbs_address to;
    int error;

    if (d->state == VERBS_CONNECTED)
        return true;
    if (d->state == VERBS_NONE && !dest_make(d))
        return false;
    memcpy(&to, px->addresses[d->dest->pe].data, sizeof to);
    error = verbs_qp_connect(px->net, d->qp, d->psn, &to, hello->qp, hello->psn);
    if (error) {
        tern_error(TERN_ERR_TRANSPORT, "verbs: cannot connect to PE %d: %s; see TERN_NIC, TERN_GID_INDEX", d->dest->pe,
                   strerror(error));
        return false;
    }
    d->state = VERBS_CONNECTED;
    return hello_send(d, true);
}

void verbs_message(struct tern_proxy_thread *t, int from, const void *body, size_t bytes)
{
    struct verbs_dest *d = verbs_dest_of(t, tern_dest_of(t, from));
    struct verbs_hello hello;

    if (bytes != sizeof hello || d->failed != TERN_OK || d->state == VERBS_BROKEN)
        return;
    memcpy(&hello, body, sizeof hello);
    if (!dest_answer(d, &hello)) {
        d->state = VERBS_BROKEN;
        verbs_lost(d, tern_last_error());
        return;
    }
    d->ready |= hello.ready;
    if (d->dest->pending)
        tern_dest_activate(t, d->dest);
}

void verbs_disconnect(struct verbs_dest *d)
{
    if (d->qp)
        verbs.ibv_destroy_qp(d->qp);
    d->qp = NULL;
    d->state = VERBS_BROKEN;
    d->ready = false;
}
