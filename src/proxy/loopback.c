/*
 * loopback.c - same-node PEs by the mapping of their spans, for tests: an operation is executed, and complete, when it is
 * posted. Data is copied before its signal is stored with release.
 */
#include <string.h>

#include "proxy/engine.h"

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

static void word_store(void *to, uint64_t value, uint64_t bytes)
{
    if (bytes == 8)
        __atomic_store_n((uint64_t *)to, value, __ATOMIC_RELEASE);
    else if (bytes == 4)
        __atomic_store_n((uint32_t *)to, (uint32_t)value, __ATOMIC_RELEASE);
    else if (bytes == 2)
        __atomic_store_n((uint16_t *)to, (uint16_t)value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint8_t *)to, (uint8_t)value, __ATOMIC_RELEASE);
}

static uint64_t word_load(const void *from, uint64_t bytes)
{
    if (bytes == 8)
        return __atomic_load_n((const uint64_t *)from, __ATOMIC_ACQUIRE);
    if (bytes == 4)
        return __atomic_load_n((const uint32_t *)from, __ATOMIC_ACQUIRE);
    if (bytes == 2)
        return __atomic_load_n((const uint16_t *)from, __ATOMIC_ACQUIRE);
    return __atomic_load_n((const uint8_t *)from, __ATOMIC_ACQUIRE);
}

static enum tern_post loopback_post(struct tern_proxy_thread *t, struct tern_op *op)
{
    char *remote = peer_addr(t, op, op->remote);

    switch (op->kind) {
    case TERN_OP_WORD:
        word_store(remote, op->value, op->bytes);
        break;
    case TERN_OP_G:
        op->value = word_load(remote, op->bytes);
        break;
    case TERN_OP_GET:
        memcpy(tern_op_local(t, op), remote, op->bytes);
        break;
    default:
        memcpy(remote, tern_op_local(t, op), op->bytes);
        if (op->kind == TERN_OP_PUT_SIGNAL)
            word_store(peer_addr(t, op, op->signal), op->value, 8);
        break;
    }
    tern_op_done(t, op, TERN_OK);
    return TERN_POSTED;
}

const struct tern_transport tern_transport_loopback = {
    .name = "loopback",
    .caps = TERN_NET_ORDERED,
    .reaches = loopback_reaches,
    .post = loopback_post,
};
