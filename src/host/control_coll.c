/*
 * control_coll.c - collective calls of the control plane: up and down a 16-ary tree over the group's members (its
 * lowest PE is the root; up to 17 PEs it is a star). A call is known by group and sequence number; what must be equal
 * is compared on the way up, and the first difference becomes every member's error. Progress is made by whoever holds
 * the lock: the calling thread enters its share, the control thread brings the others', so that a PE whose program is
 * late still collects, and can name who has not come.
 */
#include "host/control.h"

#include <stdlib.h>
#include <string.h>

#include "host/bootstrap/bootstrap.h"

#define ANSWER_GRACE_MS 1000
#define TEXT_BYTES 384

enum coll_kind { COLL_BARRIER = 1, COLL_ALLREDUCE, COLL_ALLGATHER };

struct part { /* a child's share that has arrived */
    struct part *next;
    int pe;
    struct tern_frame_up head;
    size_t bytes;
    char payload[];
};

struct tern_coll {
    struct tern_coll *next;
    uint32_t group, seq;
    bool mine;      /* the own call has come; what follows up to `parts` is valid from then on */
    const int *pes; /* NULL: all */
    int index, members, children, taken;
    uint32_t arrived; /* bit per child */
    struct tern_frame_up head;
    char *acc; /* allreduce: words so far; allgather: {index, data} of the subtree so far */
    size_t acc_bytes;
    const enum tern_reduce *ops;
    tern_status_t status;
    char text[TEXT_BYTES];
    bool sent, done;
    char *result;
    struct part *parts; /* not taken yet */
    uint64_t first_ns;  /* the first sign of the call */
};

static int member_pe(const struct tern_coll *coll, int index)
{
    return coll->pes ? coll->pes[index] : index;
}

static int member_index(const struct tern_coll *coll, int pe)
{
    if (!coll->pes)
        return pe;
    int low = 0, high = coll->members;
    while (low < high) {
        int middle = (low + high) / 2;
        if (coll->pes[middle] < pe)
            low = middle + 1;
        else
            high = middle;
    }
    return low < coll->members && coll->pes[low] == pe ? low : -1;
}

static struct tern_coll *coll_find(struct tern_control *c, uint32_t group, uint32_t seq)
{
    struct tern_coll *coll = c->colls;
    while (coll && (coll->group != group || coll->seq != seq))
        coll = coll->next;
    return coll;
}

static struct tern_coll *coll_enter(struct tern_control *c, uint32_t group, uint32_t seq)
{
    struct tern_coll *coll = coll_find(c, group, seq);
    if (coll)
        return coll;
    coll = calloc(1, sizeof *coll);
    if (!coll)
        return NULL;
    coll->group = group;
    coll->seq = seq;
    coll->first_ns = tern_now_ns();
    coll->next = c->colls;
    c->colls = coll;
    return coll;
}

static void coll_remove(struct tern_control *c, struct tern_coll *coll)
{
    struct tern_coll **p = &c->colls;
    while (*p != coll)
        p = &(*p)->next;
    *p = coll->next;
    while (coll->parts) {
        struct part *part = coll->parts;
        coll->parts = part->next;
        free(part);
    }
    free(coll->acc);
    free(coll->result);
    free(coll);
}

void tern_coll_free(struct tern_control *c)
{
    while (c->colls)
        coll_remove(c, c->colls);
}

static void coll_fail(struct tern_coll *coll, tern_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void coll_fail(struct tern_coll *coll, tern_status_t status, const char *format, ...)
{
    va_list args;
    if (coll->status != TERN_OK)
        return;
    coll->status = status;
    va_start(args, format);
    vsnprintf(coll->text, sizeof coll->text, format, args);
    va_end(args);
}

/* ---- combining --------------------------------------------------------------------------------------------------- */

static uint64_t reduce(enum tern_reduce op, uint64_t a, uint64_t b)
{
    switch (op) {
    case TERN_REDUCE_MIN:
        return a < b ? a : b;
    case TERN_REDUCE_MAX:
        return a > b ? a : b;
    case TERN_REDUCE_AND:
        return a & b;
    case TERN_REDUCE_OR:
        return a | b;
    case TERN_REDUCE_SUM:
        return a + b;
    }
    return a;
}

static void combine(struct tern_coll *coll, const char *payload, size_t bytes)
{
    if (coll->head.kind == COLL_ALLREDUCE) {
        for (size_t at = 0; at < bytes && at < coll->acc_bytes; at += sizeof(uint64_t)) {
            uint64_t mine, theirs;
            memcpy(&mine, coll->acc + at, sizeof mine);
            memcpy(&theirs, payload + at, sizeof theirs);
            mine = reduce(coll->ops[at / sizeof(uint64_t)], mine, theirs);
            memcpy(coll->acc + at, &mine, sizeof mine);
        }
    } else if (coll->head.kind == COLL_ALLGATHER) {
        char *grown = realloc(coll->acc, coll->acc_bytes + bytes);
        if (!grown) {
            coll_fail(coll, TERN_ERR_NO_MEMORY, "no memory to gather %zu bytes; free some", coll->acc_bytes + bytes);
            return;
        }
        memcpy(grown + coll->acc_bytes, payload, bytes);
        coll->acc = grown;
        coll->acc_bytes += bytes;
    }
}

static void part_take(struct tern_coll *coll, const struct part *part)
{
    const struct tern_frame_up *mine = &coll->head, *theirs = &part->head;
    int index = member_index(coll, part->pe);

    coll->taken++;
    if (index >= 1)
        coll->arrived |= 1u << (index - 1) % TERN_TREE_ARITY;
    if (theirs->status != TERN_OK)
        coll_fail(coll, (tern_status_t)theirs->status, "%.*s", (int)part->bytes, part->payload);
    else if (index < 1 || (index - 1) / TERN_TREE_ARITY != coll->index || theirs->members != mine->members)
        coll_fail(coll, TERN_ERR_MISMATCH,
                  "PE %d and PE %d have different members in group %u; make groups by the same calls "
                  "on all PEs",
                  member_pe(coll, coll->index), part->pe, coll->group);
    else if (theirs->kind != mine->kind || theirs->bytes != mine->bytes || theirs->ops != mine->ops)
        coll_fail(coll, TERN_ERR_MISMATCH,
                  "PE %d is in %.*s where PE %d is in %.*s (call %u of group %u); all PEs must make the "
                  "same collective calls in the same order",
                  member_pe(coll, coll->index), TERN_CALL_BYTES, mine->call, part->pe, TERN_CALL_BYTES, theirs->call,
                  coll->seq, coll->group);
    else
        combine(coll, part->payload, part->bytes);
}

/* ---- up and down ------------------------------------------------------------------------------------------------- */

static void coll_send(struct tern_control *c, int pe, enum tern_frame_type type, const void *head, size_t head_bytes,
                      const void *body, size_t bytes)
{
    if (!tern_conn_send(c, pe, type, head, head_bytes, body, bytes, NULL, 0) && !c->links[pe].dead &&
        !c->links[pe].left)
        tern_abort_raise(c, TERN_ERR_NO_MEMORY, c->rt->pe, -1, "no host memory for a message on the control plane");
}

static void send_down(struct tern_control *c, struct tern_coll *coll, const char *payload, size_t bytes)
{
    struct tern_frame_down head = {coll->group, coll->seq, (int32_t)coll->status, 0};
    for (int i = 0; i < coll->children; i++) {
        int pe = member_pe(coll, coll->index * TERN_TREE_ARITY + 1 + i);
        coll_send(c, pe, TERN_FRAME_DOWN, &head, sizeof head, payload, bytes);
    }
}

static size_t result_bytes(const struct tern_coll *coll)
{
    switch (coll->head.kind) {
    case COLL_ALLREDUCE:
        return coll->head.bytes;
    case COLL_ALLGATHER:
        return (size_t)coll->head.bytes * (size_t)coll->members;
    default:
        return 0;
    }
}

/* The root has all: order what was gathered. */
static void root_result(struct tern_coll *coll)
{
    size_t bytes = result_bytes(coll), entry = sizeof(uint32_t) + coll->head.bytes;
    coll->result = calloc(1, bytes + 1);
    if (!coll->result) {
        coll_fail(coll, TERN_ERR_NO_MEMORY, "no memory to gather %zu bytes; free some", bytes);
        return;
    }
    if (coll->head.kind != COLL_ALLGATHER) {
        if (bytes)
            memcpy(coll->result, coll->acc, bytes);
        return;
    }
    for (size_t at = 0; at + entry <= coll->acc_bytes; at += entry) {
        uint32_t index;
        memcpy(&index, coll->acc + at, sizeof index);
        if (index < (uint32_t)coll->members)
            memcpy(coll->result + (size_t)index * coll->head.bytes, coll->acc + at + sizeof index, coll->head.bytes);
    }
}

static void coll_done(struct tern_control *c, struct tern_coll *coll)
{
    if (coll->status == TERN_OK)
        send_down(c, coll, coll->result, result_bytes(coll));
    else
        send_down(c, coll, coll->text, strlen(coll->text));
    coll->done = true;
    pthread_cond_broadcast(&c->cond);
}

static void coll_advance(struct tern_control *c, struct tern_coll *coll)
{
    if (!coll->mine)
        return;
    while (coll->parts) {
        struct part *part = coll->parts;
        coll->parts = part->next;
        part_take(coll, part);
        free(part);
    }
    if (coll->taken < coll->children || coll->sent)
        return;
    coll->sent = true;
    if (coll->index == 0) {
        if (coll->status == TERN_OK)
            root_result(coll);
        coll_done(c, coll);
        return;
    }
    int parent = member_pe(coll, (coll->index - 1) / TERN_TREE_ARITY);
    bool good = coll->status == TERN_OK;
    coll->head.status = (int32_t)coll->status;
    coll_send(c, parent, TERN_FRAME_UP, &coll->head, sizeof coll->head, good ? coll->acc : coll->text,
              good ? coll->acc_bytes : strlen(coll->text));
}

void tern_coll_up(struct tern_control *c, int pe, const char *body, size_t bytes)
{
    struct tern_frame_up head;
    if (bytes < sizeof head)
        return;
    memcpy(&head, body, sizeof head);
    struct tern_coll *coll = coll_enter(c, head.group, head.seq);
    struct part *part = malloc(sizeof *part + bytes - sizeof head);
    if (!coll || !part) {
        free(part);
        tern_abort_raise(c, TERN_ERR_NO_MEMORY, c->rt->pe, -1, "no host memory for a message on the control plane");
        return;
    }
    part->pe = pe;
    part->head = head;
    part->bytes = bytes - sizeof head;
    memcpy(part->payload, body + sizeof head, part->bytes);
    part->next = coll->parts;
    coll->parts = part;
    coll_advance(c, coll);
}

void tern_coll_down(struct tern_control *c, int pe, const char *body, size_t bytes)
{
    struct tern_frame_down head;
    (void)pe;
    if (bytes < sizeof head)
        return;
    memcpy(&head, body, sizeof head);
    struct tern_coll *coll = coll_find(c, head.group, head.seq);
    if (!coll || !coll->sent || coll->done)
        return; /* the own call ended early: abort, death */
    const char *payload = body + sizeof head;
    bytes -= sizeof head;
    if (head.status != TERN_OK) {
        coll->status = TERN_OK; /* the root's word replaces the own */
        coll_fail(coll, (tern_status_t)head.status, "%.*s", (int)bytes, payload);
    } else {
        coll->result = malloc(bytes + 1);
        if (!coll->result || bytes != result_bytes(coll)) {
            tern_abort_raise(c, TERN_ERR_NO_MEMORY, c->rt->pe, -1, "no host memory for a message on the control plane");
            return;
        }
        memcpy(coll->result, payload, bytes);
    }
    coll_done(c, coll);
}

/* ---- deadlines --------------------------------------------------------------------------------------------------- */

/* Levels of the tree below a member. */
static int height(const struct tern_coll *coll, int index)
{
    int levels = 0;
    while ((int64_t)index * TERN_TREE_ARITY + 1 < coll->members) {
        index = index * TERN_TREE_ARITY + 1;
        levels++;
    }
    return levels;
}

/*
 * Who misses a PE says so at the deadline; who is farther off gives the nearer ones time to, and who waits for the
 * answer comes last.
 */
static uint64_t coll_deadline(const struct tern_control *c, const struct tern_coll *coll)
{
    int levels = 0;
    if (coll->sent)
        levels = height(coll, 0) + 1;
    else if (coll->mine)
        levels = height(coll, coll->index) - 1;
    return coll->first_ns +
           ((uint64_t)c->rt->env.timeout_ms + ANSWER_GRACE_MS * (uint64_t)(levels > 0 ? levels : 0)) * 1000000u;
}

static int missing_child(const struct tern_coll *coll)
{
    int i = 0;
    while (i < coll->children - 1 && coll->arrived >> i & 1)
        i++;
    return member_pe(coll, coll->index * TERN_TREE_ARITY + 1 + i);
}

static void coll_overdue(struct tern_control *c, struct tern_coll *coll)
{
    const char *call = coll->mine ? coll->head.call : coll->parts ? coll->parts->head.call : "a collective call";
    char text[TEXT_BYTES], who[64];
    int missing = -1;

    if (!coll->mine) {
        missing = c->rt->pe;
        snprintf(who, sizeof who, "PE %d has not come", missing);
    } else if (coll->sent) {
        missing = member_pe(coll, (coll->index - 1) / TERN_TREE_ARITY);
        snprintf(who, sizeof who, "no answer by PE %d", missing);
    } else {
        missing = missing_child(coll);
        bool subtree = (int64_t)member_index(coll, missing) * TERN_TREE_ARITY + 1 < coll->members;
        snprintf(who, sizeof who, subtree ? "PE %d or one behind it has not come" : "PE %d has not come", missing);
    }
    snprintf(text, sizeof text,
             "%.*s (call %u of group %u): %s within %lld ms; all PEs must make the same collective calls, or raise "
             "TERN_TIMEOUT_MS",
             TERN_CALL_BYTES, call, coll->seq, coll->group, who, (long long)c->rt->env.timeout_ms);
    tern_abort_raise(c, TERN_ERR_TIMEOUT, missing, -1, text);
}

void tern_coll_tick(struct tern_control *c, uint64_t now)
{
    for (struct tern_coll *coll = c->colls; coll && !atomic_load(&c->rt->abort); coll = coll->next) {
        if (!coll->done && now >= coll_deadline(c, coll))
            coll_overdue(c, coll);
    }
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

static int dead_member(struct tern_control *c, const struct tern_coll *coll)
{
    for (int i = 0; c->deaths && i < coll->members; i++) {
        if (c->links[member_pe(coll, i)].dead)
            return member_pe(coll, i);
    }
    return -1;
}

/* The own share of a call; what has come before it is taken at once. */
static struct tern_coll *coll_begin(struct tern_control *c, const struct tern_group *group, enum coll_kind kind,
                                    const void *in, size_t bytes, const enum tern_reduce *ops)
{
    uint32_t *seq = group ? group->seq : &c->seq_all;
    struct tern_coll *coll = coll_enter(c, group ? group->id : 0, (*seq)++);
    int first;

    if (!coll)
        return NULL;
    coll->pes = group ? group->pes : NULL;
    coll->members = group ? group->count : c->rt->n_pes;
    coll->index = member_index(coll, c->rt->pe);
    coll->ops = ops;
    first = coll->index * TERN_TREE_ARITY + 1;
    if (first < coll->members)
        coll->children = coll->members - first < TERN_TREE_ARITY ? coll->members - first : TERN_TREE_ARITY;
    coll->head = (struct tern_frame_up){.group = coll->group,
                                        .seq = coll->seq,
                                        .kind = kind,
                                        .members = (uint32_t)coll->members,
                                        .bytes = (uint32_t)bytes};
    for (size_t i = 0; kind == COLL_ALLREDUCE && i < bytes / sizeof(uint64_t); i++)
        coll->head.ops = coll->head.ops * 31 + (uint32_t)ops[i] + 1;
    snprintf(coll->head.call, sizeof coll->head.call, "%s", tern_call_name ? tern_call_name : "an internal call");

    size_t prefix = kind == COLL_ALLGATHER ? sizeof(uint32_t) : 0;
    uint32_t index = (uint32_t)coll->index;
    coll->acc_bytes = prefix + bytes;
    coll->acc = malloc(coll->acc_bytes + 1);
    if (!coll->acc) {
        coll_remove(c, coll);
        return NULL;
    }
    memcpy(coll->acc, &index, prefix);
    if (bytes)
        memcpy(coll->acc + prefix, in, bytes);
    coll->mine = true;
    coll_advance(c, coll);
    return coll;
}

static tern_status_t coll_end(struct tern_control *c, struct tern_coll *coll, void *out)
{
    struct tern_rt *rt = c->rt;
    uint64_t deadline =
        tern_now_ns() + ((uint64_t)rt->env.timeout_ms + (uint64_t)(height(coll, 0) + 3) * ANSWER_GRACE_MS) * 1000000u;
    tern_status_t status;
    int dead = -1;

    while (!coll->done && !atomic_load(&rt->abort) && (dead = dead_member(c, coll)) < 0) {
        if (tern_now_ns() >= deadline)
            coll_overdue(c, coll); /* the control thread should have said so */
        else
            tern_control_wait(c, deadline);
    }
    if (coll->done && coll->status == TERN_OK) {
        memcpy(out, coll->result, result_bytes(coll));
        status = TERN_OK;
    } else if (coll->done) {
        status = tern_error(coll->status, "%s", coll->text);
    } else if (atomic_load(&rt->abort)) {
        status =
            TERN_ABORT_STATUS(atomic_load(&rt->abort)) == TERN_ERR_TIMEOUT ? TERN_ERR_TIMEOUT : tern_abort_status(rt);
        status = tern_error(status, "%.*s ended, for the job was aborted: %s; call tern_finalize", TERN_CALL_BYTES,
                            coll->head.call, rt->abort_reason);
    } else {
        char name[160];
        status = tern_error(TERN_ERR_PEER_DEAD, "%.*s cannot complete: %s is dead; use a group without it",
                            TERN_CALL_BYTES, coll->head.call, tern_link_name(c, dead, name, sizeof name));
    }
    coll_remove(c, coll);
    return status;
}

static tern_status_t coll_run(struct tern_rt *rt, const struct tern_group *group, enum coll_kind kind, const void *in,
                              size_t bytes, const enum tern_reduce *ops, void *out)
{
    struct tern_control *c = rt->control;
    tern_status_t status;

    pthread_mutex_lock(&c->lock);
    if (atomic_load(&rt->abort)) {
        status = tern_error(tern_abort_status(rt), "the job was aborted: %s; call tern_finalize", rt->abort_reason);
    } else {
        struct tern_coll *coll = coll_begin(c, group, kind, in, bytes, ops);
        status = coll ? coll_end(c, coll, out)
                      : tern_error(TERN_ERR_NO_MEMORY, "no host memory for a collective call of %zu bytes; free some",
                                   bytes);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

tern_status_t tern_control_barrier(struct tern_rt *rt, const struct tern_group *group)
{
    char nothing;
    return coll_run(rt, group, COLL_BARRIER, NULL, 0, NULL, &nothing);
}

tern_status_t tern_control_allreduce(struct tern_rt *rt, const struct tern_group *group, uint64_t *words, int count,
                                     const enum tern_reduce *ops)
{
    return coll_run(rt, group, COLL_ALLREDUCE, words, (size_t)count * sizeof *words, ops, words);
}

tern_status_t tern_control_allgather(struct tern_rt *rt, const struct tern_group *group, const void *in, size_t bytes,
                                     void *out)
{
    return coll_run(rt, group, COLL_ALLGATHER, in, bytes, NULL, out);
}
