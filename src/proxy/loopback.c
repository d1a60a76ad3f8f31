/*
 * loopback.c - same-node PEs by the mapping of their spans, for tests: an operation is executed, and complete, when it
 * is posted; with TERN_LOOPBACK_FAULTS when its time has come. Data is copied before its signal is stored with release.
 */
#include <stdlib.h>
#include <string.h>

#include "proxy/loopback.h"

/* Of the runtime. */
struct loopback_net {
    struct loopback_faults faults;
    struct loopback_thread *threads;
};

static bool loopback_reaches(struct tern_rt *rt, int pe, const char **why)
{
    *why = rt->peers[pe].mapped ? "loopback, for tests" : "loopback reaches PEs of the same node only";
    return rt->peers[pe].mapped;
}

static char *peer_addr(const struct tern_proxy_thread *t, const struct tern_op *op, uint64_t offset)
{
    const struct tern_rt *rt = t->px->rt;
    return rt->window + rt->peers[op->dest->pe].slot * rt->stride + offset;
}

/* A copy that fails is a failed operation. */
static void execute(struct tern_proxy_thread *t, struct tern_op *op)
{
    struct tern_copier *copier = ((struct loopback_thread *)t->net)->copier;
    char *remote = peer_addr(t, op, op->remote);
    tern_status_t status;

    switch (op->kind) {
    case TERN_OP_WORD:
        status = tern_device_copier_store(copier, remote, op->value, (unsigned)op->bytes);
        break;
    case TERN_OP_G:
        status = tern_device_copier_load(copier, remote, (unsigned)op->bytes, &op->value);
        break;
    case TERN_OP_GET:
        status = tern_device_copier_copy(copier, tern_op_local(t, op), remote, op->bytes);
        break;
    default:
        status = tern_device_copier_copy(copier, remote, tern_op_local(t, op), op->bytes);
        if (op->kind == TERN_OP_PUT_SIGNAL && status == TERN_OK)
            status = tern_device_copier_store(copier, peer_addr(t, op, op->signal), op->value, 8);
        break;
    }
    if (status != TERN_OK)
        tern_dest_fail(t, op->dest, TERN_ERR_TRANSPORT, op, tern_last_error());
    tern_op_done(t, op, status);
}

#ifdef TERN_DEVICE_CUDA
/* RPC atomics; where the CPU reaches the heap it does without. */
static tern_status_t loopback_word_load(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t *value)
{
    return tern_device_copier_load(((struct loopback_thread *)t->net)->copier, t->px->rt->span + offset, size, value);
}

static tern_status_t loopback_word_store(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t value)
{
    return tern_device_copier_store(((struct loopback_thread *)t->net)->copier, t->px->rt->span + offset, value, size);
}
#endif

static enum tern_post loopback_post(struct tern_proxy_thread *t, struct tern_op *op)
{
    const struct loopback_net *net = t->px->net;

    if (net->faults.any)
        return tern_loopback_hold(t, &net->faults, op);
    execute(t, op);
    return TERN_POSTED;
}

static bool loopback_poll(struct tern_proxy_thread *t)
{
    const struct loopback_net *net = t->px->net;
    struct loopback_thread *lt = t->net;
    struct tern_op *op;
    bool any = false;

    while (net->faults.any && (op = tern_loopback_next(lt))) {
        lt->under_way[op->dest - t->dests]--;
        execute(t, op);
        any = true;
    }
    return any;
}

static void loopback_dest_fail(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status)
{
    const struct loopback_net *net = t->px->net;
    struct tern_op *op;

    while (net->faults.any && (op = tern_loopback_drop(t->net, dest)))
        tern_op_done(t, op, status);
}

static void loopback_close(struct tern_proxy *px)
{
    struct loopback_net *net = px->net;

    if (!net)
        return;
    for (int i = 0; net->threads && i < px->threads; i++) {
        tern_loopback_faults_close(&net->threads[i]);
        tern_device_copier_close(net->threads[i].copier);
    }
    free(net->threads);
    free(net);
    px->net = NULL;
}

static tern_status_t loopback_open(struct tern_proxy *px)
{
    const char *text = px->rt->env.loopback_faults;
    struct loopback_net *net;
    tern_status_t status = TERN_OK;
    char what[80];

    px->net = net = calloc(1, sizeof *net);
    if (net)
        net->threads = calloc((size_t)px->threads, sizeof *net->threads);
    if (!net || !net->threads)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the loopback transport");
    if (text && !tern_loopback_parse(text, &net->faults, what, sizeof what))
        return tern_error(
            TERN_ERR_CONFIG,
            "TERN_LOOPBACK_FAULTS: '%s' is none of delay=LO-HIus, reorder=P (0 to 1), credits=N, fail=K, pe=N, "
            "kill=PE@K, seed=S, separated by commas",
            what);
    if (net->faults.reorder > 0)
        px->caps &= ~TERN_NET_ORDERED;
    for (int i = 0; i < px->threads && status == TERN_OK; i++) {
        px->thread[i].net = &net->threads[i];
        status = tern_device_copier_open(px->rt, &net->threads[i].copier);
        if (status == TERN_OK && net->faults.any)
            status = tern_loopback_faults_open(&px->thread[i], &net->threads[i], net->faults.seed);
    }
    tern_log(TERN_LOG_INFO, "loopback is for tests%s%s", net->faults.any ? "; faults: " : "",
             net->faults.any ? text : "");
    return status;
}

const struct tern_transport tern_transport_loopback = {
    .name = "loopback",
    .caps = TERN_NET_ORDERED,
    .reaches = loopback_reaches,
    .open = loopback_open,
    .close = loopback_close,
    .post = loopback_post,
    .poll = loopback_poll,
    .dest_fail = loopback_dest_fail,
#ifdef TERN_DEVICE_CUDA
    .word_load = loopback_word_load,
    .word_store = loopback_word_store,
#endif
};
