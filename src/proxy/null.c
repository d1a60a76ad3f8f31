/*
 * null.c - the transport that moves nothing: every operation is decoded in full, folded into a checksum and complete at
 * once. It measures and tests what is in front of a transport. Fetched values are 0.
 */
#include "proxy/engine.h"

static bool null_reaches(struct tern_rt *rt, int pe, const char **why)
{
    (void)rt;
    (void)pe;
    *why = "null moves nothing";
    return true;
}

static tern_status_t null_open(struct tern_proxy *px)
{
    (void)px;
    tern_log(TERN_LOG_INFO, "TERN_TRANSPORT=null: operations through the proxy move nothing");
    return TERN_OK;
}

/* Every field counts, and so does the order. */
static uint64_t fold(uint64_t sum, const struct tern_op *op)
{
    uint64_t x = op->remote + (op->local << 7) + (op->bytes << 1) + (op->value << 3) + (op->compare << 5) +
                 (op->signal << 11) + ((uint64_t)op->kind << 56) + ((uint64_t)op->amo << 48) +
                 ((uint64_t)op->segment << 40) + (uint64_t)op->dest->pe;
    return (sum ^ x) * 0x9e3779b97f4a7c15ull + (sum >> 29);
}

static enum tern_post null_post(struct tern_proxy_thread *t, struct tern_op *op)
{
    t->checksum = fold(t->checksum, op);
    if (op->kind == TERN_OP_G || op->kind == TERN_OP_AMO)
        op->value = 0;
    tern_op_done(t, op, TERN_OK);
    return TERN_POSTED;
}

const struct tern_transport tern_transport_null = {
    .name = "null",
    .caps = TERN_NET_ORDERED | TERN_NET_AMO,
    .reaches = null_reaches,
    .open = null_open,
    .post = null_post,
};
