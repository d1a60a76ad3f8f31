/*
 * rpc.c - atomics that the owner of the word executes for others. A thread sends the RPCs at the head of a
 * destination's list in one message over the control plane; the owner's thread executes them in order and answers all
 * in one. Each thread has a box in which the control thread puts what has come for it.
 *
 * One thread executes all atomics on the words of a PE (pe % threads of the owner), so they need not be atomic against
 * each other where the transport has but loads and stores.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/heap.h"
#include "proxy/engine.h"

#define RPC_BATCH 64u

#ifdef TERN_DEVICE_CPU
#define ON_HOST true /* heaps are memory of the CPU */
#else
#define ON_HOST false
#endif

enum { RPC_REQUEST = 1, RPC_ANSWER, RPC_NET /* of transports: their own */ };

struct rpc_head {
    uint16_t kind, count;
    uint32_t thread; /* of the PE that asks */
    uint64_t batch;  /* number of the first operation */
};

struct rpc_request {
    uint64_t offset, value, compare;
    uint8_t amo, bytes, pad[6];
};

struct rpc_answer {
    uint64_t old;
    uint32_t status, pad;
};

union rpc_message {
    struct {
        struct rpc_head head;
        struct rpc_request item[RPC_BATCH];
    } request;
    struct {
        struct rpc_head head;
        struct rpc_answer item[RPC_BATCH];
    } answer;
};

/* PEs of one version talk, but their compilers may differ. */
_Static_assert(sizeof(struct rpc_head) == 16 && offsetof(struct rpc_head, batch) == 8, "travels");
_Static_assert(sizeof(struct rpc_request) == 32 && offsetof(struct rpc_request, amo) == 24, "travels");
_Static_assert(sizeof(struct rpc_answer) == 16 && offsetof(struct rpc_answer, status) == 8, "travels");
_Static_assert(sizeof(union rpc_message) <= TERN_MESSAGE_MOST, "a batch is one message");

static size_t message_bytes(unsigned kind, unsigned count)
{
    return sizeof(struct rpc_head) +
           count * (kind == RPC_REQUEST ? sizeof(struct rpc_request) : sizeof(struct rpc_answer));
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

struct tern_rpc_mail {
    struct tern_rpc_mail *next;
    int from;
    size_t bytes;
    union rpc_message message; /* as much of it as there is */
};

void tern_rpc_open(struct tern_proxy_thread *t)
{
    pthread_mutex_init(&t->mail_lock, NULL);
    t->mail = NULL;
    t->mail_tail = &t->mail;
}

static bool mail_put(struct tern_proxy_thread *t, int from, const void *message, size_t bytes)
{
    struct tern_rpc_mail *mail = malloc(offsetof(struct tern_rpc_mail, message) + bytes);
    if (!mail)
        return false;
    mail->next = NULL;
    mail->from = from;
    mail->bytes = bytes;
    memcpy(&mail->message, message, bytes);
    pthread_mutex_lock(&t->mail_lock);
    *t->mail_tail = mail;
    t->mail_tail = &mail->next;
    atomic_fetch_add_explicit(&t->mail_count, 1, memory_order_release);
    pthread_mutex_unlock(&t->mail_lock);
    return true;
}

static struct tern_rpc_mail *mail_take_all(struct tern_proxy_thread *t)
{
    struct tern_rpc_mail *mail;
    pthread_mutex_lock(&t->mail_lock);
    mail = t->mail;
    t->mail = NULL;
    t->mail_tail = &t->mail;
    atomic_store_explicit(&t->mail_count, 0, memory_order_relaxed);
    pthread_mutex_unlock(&t->mail_lock);
    return mail;
}

void tern_rpc_close(struct tern_proxy_thread *t)
{
    for (struct tern_rpc_mail *mail = mail_take_all(t), *next; mail; mail = next) {
        next = mail->next;
        free(mail);
    }
    pthread_mutex_destroy(&t->mail_lock);
}

void tern_proxy_message(struct tern_rt *rt, int from, const void *body, size_t bytes)
{
    struct tern_proxy *px = rt->proxy;
    struct rpc_head head = {0};
    struct tern_proxy_thread *t;

    if (bytes >= sizeof head)
        memcpy(&head, body, sizeof head);
    bool net =
        head.kind == RPC_NET && px->transport && px->transport->message && bytes <= sizeof head + TERN_NET_MESSAGE;
    if (!net && ((head.kind != RPC_REQUEST && head.kind != RPC_ANSWER) || head.count == 0 || head.count > RPC_BATCH ||
                 head.thread >= (uint32_t)px->threads || bytes != message_bytes(head.kind, head.count))) {
        tern_control_abort(rt, TERN_ERR_TRANSPORT, from,
                           "PE %d sent PE %d a message of %zu bytes that is no RPC (kind %u, count %u, thread %u)",
                           from, rt->pe, bytes, head.kind, head.count, head.thread);
        return;
    }
    t = &px->thread[net ? from % px->threads : head.kind == RPC_REQUEST ? rt->pe % px->threads : (int)head.thread];
    if (!mail_put(t, from, body, bytes))
        tern_control_abort(rt, TERN_ERR_NO_MEMORY, rt->pe, "no host memory for an RPC of PE %d", from);
}

tern_status_t tern_proxy_net_send(struct tern_rt *rt, int pe, const void *body, size_t bytes)
{
    struct {
        struct rpc_head head;
        char body[TERN_NET_MESSAGE];
    } message = {.head = {.kind = RPC_NET}};

    memcpy(message.body, body, bytes);
    return tern_control_message(rt, pe, &message, sizeof message.head + bytes);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

bool tern_rpc_send(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    struct tern_rt *rt = t->px->rt;
    struct tern_op *first = dest->pending, *op = first;
    union rpc_message message;
    unsigned count = 0;
    size_t bytes;

    if (!first || !first->rpc || first != dest->first) /* as it is while a batch is under way */
        return false;
    for (; op && op->rpc && count < RPC_BATCH; op = op->next)
        message.request.item[count++] =
            (struct rpc_request){op->remote, op->value, op->compare, op->amo, (uint8_t)op->bytes, {0}};
    message.request.head = (struct rpc_head){RPC_REQUEST, (uint16_t)count, (uint32_t)t->index, first->number};
    bytes = message_bytes(RPC_REQUEST, count);
    if (dest->pe == rt->pe) { /* this very thread executes it, in its next look at the box */
        if (!mail_put(t, rt->pe, &message, bytes))
            return false;
    } else {
        tern_status_t status = tern_control_message(rt, dest->pe, &message, bytes);
        if (status != TERN_OK && !atomic_load(&rt->abort)) {
            char why[256];
            snprintf(why, sizeof why, "%s", tern_last_error());
            tern_dest_fail(t, dest, status, first, why);
        }
        if (status != TERN_OK)
            return false;
    }
    dest->rpc_busy = true;
    for (unsigned i = 0; i < count; i++) {
        op = dest->pending;
        op->state = TERN_OP_POSTED;
        dest->pending = op->next;
        dest->pending_count--;
        dest->posted_count++;
        tern_dest_count(dest, op->number, op->bytes, op->kind);
    }
    return true;
}

static void refused(struct tern_proxy_thread *t, const struct tern_op *op, tern_status_t status)
{
    char text[160];
    tern_op_text(t, op, text, sizeof text);
    tern_error(status,
               "%s at offset %#llx was refused by its owner (%s); pass an aligned address of the symmetric heap", text,
               (unsigned long long)op->remote, tern_status_name(status));
}

/* The operations of a batch are still the destination's first ones, in order, unless it was lost meanwhile. */
static void answers_take(struct tern_proxy_thread *t, int pe, const struct rpc_head *head,
                         const struct rpc_answer *answers)
{
    struct tern_dest *dest = tern_dest_of(t, pe);

    if (!dest->rpc_busy || !dest->first || dest->first->number != head->batch)
        return;
    dest->rpc_busy = false;
    for (unsigned i = 0; i < head->count; i++) {
        struct tern_op *op = dest->first;
        tern_status_t status = (tern_status_t)answers[i].status;
        if (!op || !op->rpc || op->state != TERN_OP_POSTED)
            break;
        if (status != TERN_OK)
            refused(t, op, status);
        if (op->fetch)
            op->value = answers[i].old;
        tern_op_done(t, op, status);
    }
}

/* ---- executing --------------------------------------------------------------------------------------------------- */

/* The word's new value. */
static uint64_t amo_apply4(const struct rpc_request *r, uint32_t old)
{
    uint32_t value = (uint32_t)r->value;
    float a, b;

    switch (r->amo) {
    case TERN_AMO_set:
    case TERN_AMO_swap:
        return value;
    case TERN_AMO_cas:
        return old == (uint32_t)r->compare ? value : old;
    case TERN_AMO_add:
        return (uint32_t)(old + value);
    case TERN_AMO_and:
        return old & value;
    case TERN_AMO_or:
        return old | value;
    case TERN_AMO_xor:
        return old ^ value;
    case TERN_AMO_add_float:
        memcpy(&a, &old, sizeof a);
        memcpy(&b, &value, sizeof b);
        a += b;
        memcpy(&value, &a, sizeof value);
        return value;
    default:
        return old;
    }
}

static uint64_t amo_apply8(const struct rpc_request *r, uint64_t old)
{
    uint64_t value = r->value;
    double a, b;

    switch (r->amo) {
    case TERN_AMO_set:
    case TERN_AMO_swap:
        return value;
    case TERN_AMO_cas:
        return old == r->compare ? value : old;
    case TERN_AMO_add:
        return old + value;
    case TERN_AMO_and:
        return old & value;
    case TERN_AMO_or:
        return old | value;
    case TERN_AMO_xor:
        return old ^ value;
    case TERN_AMO_add_float:
        memcpy(&a, &old, sizeof a);
        memcpy(&b, &value, sizeof b);
        a += b;
        memcpy(&value, &a, sizeof value);
        return value;
    default:
        return old;
    }
}

/*
 * On memory that the CPU reaches: atomic against stores and atomics of kernels, too, though the latter come here
 * themselves. Releases what the asking PE completed before, acquires what others did.
 */
static uint64_t execute_host(const struct rpc_request *r, void *at)
{
    if (r->bytes == 4) {
        uint32_t *word = at, old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        while (r->amo != TERN_AMO_fetch && !__atomic_compare_exchange_n(word, &old, (uint32_t)amo_apply4(r, old), false,
                                                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            ;
        return old;
    }
    uint64_t *word = at, old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (r->amo != TERN_AMO_fetch &&
           !__atomic_compare_exchange_n(word, &old, amo_apply8(r, old), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
    return old;
}

/* On memory that only the transport reaches. */
static tern_status_t execute_transport(struct tern_proxy_thread *t, const struct rpc_request *r, uint64_t *old)
{
    const struct tern_transport *transport = t->px->transport;
    tern_status_t status = transport->word_load(t, r->offset, r->bytes, old);
    uint64_t value, seen;

    if (status != TERN_OK)
        return status;
    while (r->bytes == 8 && transport->word_swap && (t->px->caps & TERN_NET_AMO64)) {
        if (r->amo == TERN_AMO_fetch ||
            (status = transport->word_swap(t, r->offset, *old, amo_apply8(r, *old), &seen)) != TERN_OK || seen == *old)
            return status;
        *old = seen;
    }
    value = r->bytes == 4 ? amo_apply4(r, (uint32_t)*old) : amo_apply8(r, *old);
    if (value != *old)
        status = transport->word_store(t, r->offset, r->bytes, value);
    return status;
}

static struct rpc_answer execute(struct tern_proxy_thread *t, const struct rpc_request *r)
{
    struct tern_rt *rt = t->px->rt;
    struct rpc_answer answer = {0, TERN_OK, 0};

    if (r->amo >= TERN_AMO_COUNT || (r->bytes != 4 && r->bytes != 8) || r->offset % r->bytes ||
        !tern_heap_holds(rt, r->offset, r->bytes))
        answer.status = TERN_ERR_INVALID;
    else if (t->px->transport && t->px->transport->word_load)
        answer.status = execute_transport(t, r, &answer.old);
    else if (ON_HOST)
        answer.old = execute_host(r, rt->span + r->offset);
    else
        answer.status = TERN_ERR_UNSUPPORTED; /* GPU memory, and a transport without a way to it */
    return answer;
}

static void requests_take(struct tern_proxy_thread *t, const struct tern_rpc_mail *mail)
{
    struct tern_rt *rt = t->px->rt;
    const struct rpc_head *head = &mail->message.request.head;
    union rpc_message out;

    out.answer.head = *head;
    out.answer.head.kind = RPC_ANSWER;
    for (unsigned i = 0; i < head->count; i++)
        out.answer.item[i] = execute(t, &mail->message.request.item[i]);
    if (mail->from == rt->pe)
        answers_take(t, rt->pe, &out.answer.head, out.answer.item);
    else if (!tern_control_dead(rt, mail->from) && !atomic_load(&rt->abort))
        tern_control_message(rt, mail->from, &out, message_bytes(RPC_ANSWER, head->count));
}

bool tern_rpc_poll(struct tern_proxy_thread *t)
{
    struct tern_rpc_mail *mail, *next;

    if (!atomic_load_explicit(&t->mail_count, memory_order_acquire))
        return false;
    for (mail = mail_take_all(t); mail; mail = next) {
        next = mail->next;
        if (mail->message.request.head.kind == RPC_REQUEST)
            requests_take(t, mail);
        else if (mail->message.request.head.kind == RPC_ANSWER)
            answers_take(t, mail->from, &mail->message.answer.head, mail->message.answer.item);
        else
            t->px->transport->message(t, mail->from, &mail->message.request.head + 1,
                                      mail->bytes - sizeof(struct rpc_head));
        free(mail);
    }
    return true;
}
