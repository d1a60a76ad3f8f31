/* engine_rig.c - see engine_rig.h. */
#include "proxy/engine_rig.h"

#include <sched.h>

_Atomic int rig_aborts;
tern_status_t rig_abort_status;
int rig_abort_pe;
char rig_abort_text[512];
bool rig_hold_messages;
static char held[65536];
static size_t held_bytes;
static int held_pe;
struct rig_net rig_net;
_Thread_local const char *tern_call_name;
struct tern_rt *tern_rt_current;

/* ---- what the proxy asks of the host part and the device -------------------------------------------------------- */

void tern_control_abort(struct tern_rt *rt, tern_status_t status, int pe, const char *format, ...)
{
    va_list args;
    if (atomic_fetch_add(&rig_aborts, 1))
        return;
    va_start(args, format);
    vsnprintf(rig_abort_text, sizeof rig_abort_text, format, args);
    va_end(args);
    rig_abort_status = status;
    rig_abort_pe = pe;
    atomic_store(&rt->abort, 1);
}

tern_status_t tern_abort_status(struct tern_rt *rt)
{
    (void)rt;
    return TERN_ERR_ABORTED;
}

tern_status_t tern_agree_status(struct tern_rt *rt, const struct tern_group *group, tern_status_t status)
{
    (void)rt, (void)group;
    return status;
}

tern_status_t tern_control_allreduce(struct tern_rt *rt, const struct tern_group *group, uint64_t *words, int count,
                                     const enum tern_reduce *ops)
{
    (void)rt, (void)group, (void)words, (void)count, (void)ops;
    return TERN_OK;
}

tern_status_t tern_control_allgather(struct tern_rt *rt, const struct tern_group *group, const void *in, size_t bytes,
                                     void *out)
{
    (void)group;
    for (int pe = 0; pe < rt->n_pes; pe++)
        memcpy((char *)out + (size_t)pe * bytes, in, bytes);
    return TERN_OK;
}

/* Requests of atomics come back to this very process, as if its PE were all others. */
tern_status_t tern_control_message(struct tern_rt *rt, int pe, const void *body, size_t bytes)
{
    if (rig_hold_messages) {
        REQUIRE(bytes <= sizeof held, "%zu bytes", bytes);
        memcpy(held, body, held_bytes = bytes);
        held_pe = pe;
        return TERN_OK;
    }
    tern_proxy_message(rt, pe, body, bytes);
    return TERN_OK;
}

void rig_message_deliver(struct rig *rig)
{
    rig_hold_messages = false;
    tern_proxy_message(&rig->rt, held_pe, held, held_bytes);
}

bool tern_control_dead(struct tern_rt *rt, int pe)
{
    (void)rt, (void)pe;
    return false;
}

bool tern_heap_holds(struct tern_rt *rt, uint64_t offset, uint64_t bytes)
{
    return offset <= rt->stride && bytes <= rt->stride - offset;
}

tern_status_t tern_device_alloc(struct tern_rt *rt, uint64_t bytes, void **dev)
{
    (void)rt;
    *dev = aligned_alloc(128, (bytes + 127) / 128 * 128);
    REQUIRE(*dev, "memory");
    memset(*dev, 0, bytes);
    return TERN_OK;
}

void tern_device_free(struct tern_rt *rt, void *dev)
{
    (void)rt;
    free(dev);
}

tern_status_t tern_device_host_alloc(struct tern_rt *rt, uint64_t bytes, void **host, void **dev)
{
    tern_status_t status = tern_device_alloc(rt, bytes, host);
    *dev = *host;
    return status;
}

void tern_device_host_free(struct tern_rt *rt, void *host)
{
    (void)rt;
    free(host);
}

tern_status_t tern_device_write(struct tern_rt *rt, void *dev, const void *host, uint64_t bytes)
{
    (void)rt;
    memcpy(dev, host, bytes);
    return TERN_OK;
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

void rig_open(struct rig *rig, const struct rig_config *config)
{
    memset(rig, 0, sizeof *rig);
    rig->rt.pe = RIG_PE;
    rig->rt.n_pes = rig->rt.node_n_pes = config->n_pes;
    rig->rt.needs_proxy = true;
    rig->rt.stride = RIG_SPAN;
    rig->rt.span = (char *)0x10000; /* never touched */
    rig->rt.peers = rig->peers = calloc((size_t)config->n_pes, sizeof *rig->peers);
    rig->rt.node_pes = calloc((size_t)config->n_pes, sizeof(int));
    rig->rt.env.transport = config->sysfs ? 4 : 1; /* verbs, null */
    rig->rt.env.nic = "";
    rig->rt.env.gid_index = -1;
    rig->rt.env.sysfs_root = config->sysfs ? (char *)config->sysfs : "";
    rig->rt.env.proxy_threads = config->threads;
    rig->rt.env.channels = config->channels;
    rig->rt.env.proxy_pending = config->pending ? config->pending : 4096;
    rig->rt.env.on_death = config->mask;
    rig->rt.env.device_timeout_ms = config->timeout_ms ? config->timeout_ms : 1800000;
    for (int pe = 0; pe < config->n_pes; pe++)
        rig->rt.node_pes[pe] = pe;
    rig_aborts = 0;
    rig_hold_messages = false;
    rig_abort_text[0] = '\0';
    rig_net_reset();
    REQUIRE(tern_proxy_open(&rig->rt) == TERN_OK, "open");
    rig->px = rig->rt.proxy;
    if (config->transport) {
        rig->px->transport = config->transport;
        rig->px->caps = config->transport->caps;
    }
    rig->t = &rig->px->thread[0];
    rig->heads = calloc((size_t)config->threads * (size_t)config->channels, sizeof *rig->heads);
    REQUIRE(rig->peers && rig->rt.node_pes && rig->heads, "memory");
}

uint32_t rig_incomplete(const struct rig *rig)
{
    uint32_t count = 0;
    for (int i = 0; i < rig->px->threads; i++) {
        for (const struct tern_op *op = rig->px->thread[i].all_first; op; op = op->all_next)
            count++;
    }
    return count;
}

static void pool_check(const struct tern_proxy_thread *t)
{
    CHECK(t->free_count == t->px->pool_ops, "thread %d: %u of %u operations are in the pool", t->index, t->free_count,
          t->px->pool_ops);
    CHECK(!t->all_first && !t->all_last && !t->quiets.first, "thread %d: lists are empty", t->index);
    for (int i = 0; i < t->dest_count; i++) {
        const struct tern_dest *dest = &t->dests[i];
        CHECK(!dest->first && !dest->last && !dest->pending && !dest->pending_count && !dest->posted_count &&
                  !dest->quiets.first,
              "PE %d owes nothing", dest->pe);
    }
}

void rig_close(struct rig *rig)
{
    tern_proxy_stop(&rig->rt);
    for (int i = 0; i < rig->px->threads; i++)
        pool_check(&rig->px->thread[i]);
    tern_proxy_close(&rig->rt);
    CHECK(!rig->rt.proxy, "closed");
    free(rig->peers);
    free(rig->rt.node_pes);
    free(rig->heads);
}

void rig_settle(struct rig *rig)
{
    for (int quiet = 0, turns = 0; quiet < 3; turns++) {
        REQUIRE(turns < 1000000, "the engine comes to rest");
        bool any = false;
        for (int i = 0; i < rig->px->threads; i++)
            any |= tern_engine_turn(&rig->px->thread[i]);
        quiet = any ? 0 : quiet + 1;
    }
}

/* ---- the producer ----------------------------------------------------------------------------------------------- */

static struct tern_ring_host *ring_host(const struct rig *rig, int thread, int channel)
{
    size_t index = TERN_RING_INDEX((size_t)rig->px->channels, (size_t)thread, (size_t)channel);
    return (struct tern_ring_host *)(rig->px->rings_host + index * TERN_RING_HOST_BYTES(rig->px->units));
}

static _Atomic uint64_t *ring_head(const struct rig *rig, int thread, int channel)
{
    return &rig->heads[TERN_RING_INDEX(rig->px->channels, thread, channel)];
}

uint32_t rig_space(const struct rig *rig, int thread, int channel)
{
    uint64_t taken = __atomic_load_n(&ring_host(rig, thread, channel)->taken, __ATOMIC_ACQUIRE);
    return rig->px->units - (uint32_t)(atomic_load(ring_head(rig, thread, channel)) - taken);
}

uint64_t rig_draw(struct rig *rig, int thread, int channel, unsigned count)
{
    uint64_t ticket = atomic_fetch_add_explicit(ring_head(rig, thread, channel), count, memory_order_relaxed);
    const struct tern_ring_host *host = ring_host(rig, thread, channel);
    while (ticket + count - __atomic_load_n(&host->taken, __ATOMIC_ACQUIRE) > rig->px->units) {
        if (atomic_load_explicit(&rig->rt.abort, memory_order_relaxed))
            break;
        sched_yield();
    }
    return ticket;
}

void rig_store_word(struct rig *rig, int thread, int channel, uint64_t ticket, tern_unit_t u, int word)
{
    tern_unit_t *units = (tern_unit_t *)(ring_host(rig, thread, channel) + 1);
    __atomic_store_n(&units[ticket % rig->px->units].w[word], u.w[word] | TERN_UNIT_LAP(ticket, rig->px->units),
                     __ATOMIC_RELEASE);
}

void rig_store(struct rig *rig, int thread, int channel, uint64_t ticket, tern_unit_t u)
{
    rig_store_word(rig, thread, channel, ticket, u, 0);
    rig_store_word(rig, thread, channel, ticket, u, 1);
}

uint64_t rig_push(struct rig *rig, int thread, int channel, const tern_unit_t *u, unsigned count)
{
    uint64_t ticket = rig_draw(rig, thread, channel, count);
    for (unsigned i = 0; i < count; i++)
        rig_store(rig, thread, channel, ticket + i, u[i]);
    return ticket;
}

uint64_t rig_put(struct rig *rig, int channel, int pe, uint64_t offset, uint64_t bytes)
{
    tern_unit_t u = tern_entry_short(TERN_ENTRY_put_s, 1, (unsigned)pe, offset, 4096, bytes);
    return rig_push(rig, pe % rig->px->threads, channel, &u, 1);
}

uint64_t rig_word(struct rig *rig, int channel, int pe, uint64_t offset, uint64_t value)
{
    tern_unit_t u = tern_entry_word(TERN_ENTRY_p64, (unsigned)pe, offset, value);
    return rig_push(rig, pe % rig->px->threads, channel, &u, 1);
}

uint64_t rig_plain(struct rig *rig, int channel, unsigned op, int pe, unsigned slot)
{
    tern_unit_t u = tern_entry_plain(op, (unsigned)pe, slot);
    return rig_push(rig, pe == (int)TERN_PE_ALL ? 0 : pe % rig->px->threads, channel, &u, 1);
}

uint64_t rig_amo(struct rig *rig, int channel, int pe, uint64_t offset, unsigned amo, uint64_t value, unsigned fetch,
                 unsigned slot)
{
    tern_unit_t u[2] = {tern_entry_amo((unsigned)pe, offset, value),
                        tern_entry_amo_more(offset, amo, 1, value, 0, fetch, slot)};
    return rig_push(rig, pe % rig->px->threads, channel, u, 2);
}

int rig_reply(const struct rig *rig, int thread, int channel, unsigned slot, uint64_t ticket, uint64_t *value)
{
    const struct tern_reply *reply = &ring_host(rig, thread, channel)->replies[slot];
    uint64_t word = __atomic_load_n(&reply->word, __ATOMIC_ACQUIRE);
    if (word == TERN_REPLY_NONE || (word & TERN_REPLY_TICKET) != ticket)
        return -1;
    if (value)
        *value = reply->value; /* ordered by the word, or ThreadSanitizer tells */
    return (int)(word >> 56);
}

/* ---- the transport ---------------------------------------------------------------------------------------------- */

void rig_net_reset(void)
{
    struct rig_post *posts = rig_net.posts ? rig_net.posts : calloc(RIG_POSTS, sizeof *posts);
    REQUIRE(posts, "memory");
    memset(&rig_net, 0, sizeof rig_net);
    rig_net.posts = posts;
    rig_net.fail_at = -1;
    for (int pe = 0; pe < 16; pe++)
        rig_net.credits[pe] = -1;
}

static enum tern_post net_post(struct tern_proxy_thread *t, struct tern_op *op)
{
    int pe = op->dest->pe, *credits = &rig_net.credits[pe];

    CHECK(op->state == TERN_OP_POSTED && op->dest->failed == TERN_OK, "posted once, and to living PEs only");
    CHECK(!op->rpc && !op->dest->rpc_busy, "nothing passes an atomic");
    if (*credits == 0)
        return TERN_POST_BUSY;
    if (rig_net.count == rig_net.fail_at) {
        rig_net.fail_at = -1;
        tern_error(TERN_ERR_TRANSPORT, "the rig refuses post %d; do not ask for it", rig_net.count);
        return TERN_POST_FAILED;
    }
    REQUIRE(rig_net.count < RIG_POSTS, "posts are counted");
    struct rig_post *post = &rig_net.posts[rig_net.count++];
    post->copy = *op;
    post->op = op;
    post->pe = pe;
    rig_net.open++;
    if (*credits > 0)
        --*credits;
    if (rig_net.at_once) {
        post->op = NULL;
        rig_net.open--;
        if (op->kind == TERN_OP_G || op->fetch)
            op->value = op->remote ^ 0x5a5a;
        tern_op_done(t, op, TERN_OK);
    }
    return TERN_POSTED;
}

static void net_flush(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    (void)t;
    rig_net.flushes[dest->pe]++;
    rig_net.flush_number[dest->pe] = dest->last_number;
}

static void net_dest_fail(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status)
{
    for (int i = rig_net.count - 1; i >= 0; i--) { /* the last one first: any order will do */
        struct rig_post *post = &rig_net.posts[i];
        if (!post->op || post->pe != dest->pe)
            continue;
        struct tern_op *op = post->op;
        post->op = NULL;
        rig_net.open--;
        tern_op_done(t, op, status);
    }
}

static tern_status_t net_word_load(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t *value)
{
    (void)t;
    *value = 0;
    memcpy(value, (char *)rig_net.loads + offset % sizeof rig_net.loads, size);
    return TERN_OK;
}

static tern_status_t net_word_store(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t value)
{
    (void)t;
    memcpy((char *)rig_net.loads + offset % sizeof rig_net.loads, &value, size);
    return TERN_OK;
}

#define NET(title, abilities)                                                                                          \
    {                                                                                                                  \
        .name = title, .caps = (abilities), .post = net_post, .flush = net_flush, .dest_fail = net_dest_fail,          \
        .word_load = net_word_load, .word_store = net_word_store,                                                      \
    }
const struct tern_transport rig_ordered = NET("ordered", TERN_NET_ORDERED);
const struct tern_transport rig_unordered = NET("unordered", 0);
const struct tern_transport rig_amo_ordered = NET("with atomics", TERN_NET_ORDERED | TERN_NET_AMO);

void rig_sent(struct rig *rig, int post)
{
    tern_op_sent(&rig->px->thread[rig_net.posts[post].pe % rig->px->threads], rig_net.posts[post].op);
}

void rig_done(struct rig *rig, int post, tern_status_t status)
{
    struct rig_post *p = &rig_net.posts[post];
    struct tern_op *op = p->op;

    REQUIRE(op, "post %d has ended before", post);
    p->op = NULL;
    rig_net.open--;
    if (rig_net.credits[p->pe] >= 0)
        rig_net.credits[p->pe]++;
    tern_op_done(&rig->px->thread[p->pe % rig->px->threads], op, status);
}

int rig_first_open(void)
{
    for (int i = 0; i < rig_net.count; i++) {
        if (rig_net.posts[i].op)
            return i;
    }
    return -1;
}

void rig_drain(struct rig *rig, uint64_t *random)
{
    do {
        rig_settle(rig);
        while (rig_net.open) {
            int from = (int)(test_random(random) % (uint64_t)rig_net.count), i = from;
            while (!rig_net.posts[i].op)
                i = (i + 1) % rig_net.count;
            rig_done(rig, i, TERN_OK);
        }
        rig_settle(rig);
    } while (rig_net.open);
}
