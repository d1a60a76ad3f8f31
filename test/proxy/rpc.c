/*
 * rpc.c - RPC atomics with a small engine in the place of the real one: PEs are structs of one process, messages go
 * straight to the other's boxes. Every operator against a model, sums under concurrency, batches, refusals, what is no
 * RPC, a dead owner.
 */
#include <pthread.h>
#include <sched.h>

#include "common/check.h"
#include "proxy/engine.h"

#define PES 3
#define THREADS 2
#define SPAN 4096
#define HOLE 1024 /* [HOLE, 2 * HOLE) of the span has no memory */

static struct tern_rt rts[PES];
static struct tern_proxy proxies[PES];
static struct tern_proxy_thread threads[PES][THREADS];
static struct tern_dest dests[PES][THREADS][PES]; /* by PE; a thread uses its own only */
static _Alignas(64) char spans[PES][SPAN];
static _Atomic int aborts, fails, sent, done_count[PES];
static int dead = -1;
static _Atomic int last_status;

/* ---- what rpc.c calls -------------------------------------------------------------------------------------------- */

tern_status_t tern_control_message(struct tern_rt *rt, int pe, const void *body, size_t bytes)
{
    if (pe == dead)
        return tern_error(TERN_ERR_PEER_DEAD, "PE %d is dead", pe);
    atomic_fetch_add(&sent, 1);
    tern_proxy_message(&rts[pe], rt->pe, body, bytes);
    return TERN_OK;
}

bool tern_control_dead(struct tern_rt *rt, int pe)
{
    (void)rt;
    return pe == dead;
}

void tern_control_abort(struct tern_rt *rt, tern_status_t status, int pe, const char *format, ...)
{
    (void)rt, (void)status, (void)pe, (void)format;
    atomic_fetch_add(&aborts, 1);
}

bool tern_heap_holds(struct tern_rt *rt, uint64_t offset, uint64_t bytes)
{
    (void)rt;
    return offset <= SPAN && bytes <= SPAN - offset && (offset + bytes <= HOLE || offset >= 2 * HOLE);
}

struct tern_dest *tern_dest_of(struct tern_proxy_thread *t, int pe)
{
    return &dests[t->px->rt->pe][t->index][pe];
}

void tern_op_done(struct tern_proxy_thread *t, struct tern_op *op, tern_status_t status)
{
    struct tern_dest *dest = op->dest;

    REQUIRE(dest->first == op && op->state == TERN_OP_POSTED, "operations end in order");
    dest->first = op->next;
    if (!dest->first)
        dest->last = NULL;
    dest->posted_count--;
    last_status = status;
    op->state = TERN_OP_FREE;
    atomic_fetch_add(&done_count[t->px->rt->pe], 1);
}

void tern_dest_fail(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status, const struct tern_op *op,
                    const char *why)
{
    (void)t;
    CHECK(status == TERN_ERR_PEER_DEAD && op == dest->first && strstr(why, "dead"), "%s", why);
    atomic_fetch_add(&fails, 1);
}

void tern_op_text(const struct tern_proxy_thread *t, const struct tern_op *op, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "operation %d (proxy thread %d)", op->kind, t->index);
}

/* ---- the small engine -------------------------------------------------------------------------------------------- */

/* What the fake transport has instead of the span: the CPU may not touch the word. */
static tern_status_t word_load(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t *value)
{
    *value = 0;
    memcpy(value, spans[t->px->rt->pe] + offset, size);
    return TERN_OK;
}

static tern_status_t word_store(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t value)
{
    memcpy(spans[t->px->rt->pe] + offset, &value, size);
    return TERN_OK;
}

static const struct tern_transport with_words = {.name = "words", .word_load = word_load, .word_store = word_store};

static void reset(const struct tern_transport *transport)
{
    memset(spans, 0, sizeof spans);
    memset(dests, 0, sizeof dests);
    for (int pe = 0; pe < PES; pe++) {
        rts[pe].pe = pe;
        rts[pe].n_pes = PES;
        rts[pe].span = transport ? NULL : spans[pe];
        rts[pe].proxy = &proxies[pe];
        proxies[pe].rt = &rts[pe];
        proxies[pe].transport = transport;
        proxies[pe].threads = THREADS;
        proxies[pe].thread = threads[pe];
        done_count[pe] = 0;
        for (int i = 0; i < THREADS; i++) {
            memset(&threads[pe][i], 0, sizeof threads[pe][i]);
            threads[pe][i].px = &proxies[pe];
            threads[pe][i].index = i;
            tern_rpc_open(&threads[pe][i]);
            for (int to = 0; to < PES; to++)
                dests[pe][i][to].pe = to;
        }
    }
}

static void end(void)
{
    for (int pe = 0; pe < PES; pe++)
        for (int i = 0; i < THREADS; i++)
            tern_rpc_close(&threads[pe][i]);
}

/* Append an operation of PE `from` to PE `to`, by the thread that serves it. */
static void op_add(int from, int to, struct tern_op *op, uint8_t amo, unsigned bytes, uint64_t offset, uint64_t value,
                   uint64_t compare)
{
    struct tern_proxy_thread *t = &threads[from][to % THREADS];
    struct tern_dest *dest = tern_dest_of(t, to);

    memset(op, 0, sizeof *op);
    *op = (struct tern_op){.dest = dest,
                           .number = ++t->number,
                           .remote = offset,
                           .bytes = bytes,
                           .value = value,
                           .compare = compare,
                           .kind = TERN_OP_AMO,
                           .state = TERN_OP_PENDING,
                           .amo = amo,
                           .fetch = true,
                           .rpc = true};
    op->prev = dest->last;
    if (dest->last)
        dest->last->next = op;
    else
        dest->first = op;
    dest->last = op;
    if (!dest->pending)
        dest->pending = op;
    dest->pending_count++;
}

/* All threads until nothing moves. */
static void turn_all(void)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (int pe = 0; pe < PES; pe++)
            for (int i = 0; i < THREADS; i++) {
                for (int to = i; to < PES; to += THREADS)
                    moved |= tern_rpc_send(&threads[pe][i], tern_dest_of(&threads[pe][i], to));
                moved |= tern_rpc_poll(&threads[pe][i]);
            }
    }
}

/* ---- model ------------------------------------------------------------------------------------------------------- */

static uint64_t model4(uint8_t amo, uint32_t old, uint32_t value, uint32_t compare)
{
    float x, y;

    if (amo == TERN_AMO_add_float) {
        memcpy(&x, &old, 4), memcpy(&y, &value, 4);
        x = x + y;
        memcpy(&value, &x, 4);
        return value;
    }
    return amo == TERN_AMO_fetch                         ? old
           : amo == TERN_AMO_set || amo == TERN_AMO_swap ? value
           : amo == TERN_AMO_cas                         ? (old == compare ? value : old)
           : amo == TERN_AMO_add                         ? old + value
           : amo == TERN_AMO_and                         ? (old & value)
           : amo == TERN_AMO_or                          ? (old | value)
                                                         : (old ^ value);
}

static uint64_t model8(uint8_t amo, uint64_t old, uint64_t value, uint64_t compare)
{
    double x, y;

    if (amo == TERN_AMO_add_float) {
        memcpy(&x, &old, 8), memcpy(&y, &value, 8);
        x = x + y;
        memcpy(&value, &x, 8);
        return value;
    }
    return amo == TERN_AMO_fetch                         ? old
           : amo == TERN_AMO_set || amo == TERN_AMO_swap ? value
           : amo == TERN_AMO_cas                         ? (old == compare ? value : old)
           : amo == TERN_AMO_add                         ? old + value
           : amo == TERN_AMO_and                         ? (old & value)
           : amo == TERN_AMO_or                          ? (old | value)
                                                         : (old ^ value);
}

static uint64_t random_operand(uint64_t *seed, uint8_t amo, unsigned bytes)
{
    uint64_t value = 0;
    double d = (double)(test_random(seed) % 2000) / 8 - 100;
    float f = (float)d;

    if (amo == TERN_AMO_add_float && bytes == 8)
        memcpy(&value, &d, 8);
    else if (amo == TERN_AMO_add_float)
        memcpy(&value, &f, 4);
    else
        value = test_random(seed) % 4 ? test_random(seed) : test_random(seed) % 3;
    return bytes == 4 ? (uint32_t)value : value;
}

/* Random operators on few words of every owner, the own PE included, in batches; each fetched value and the end. */
static void check_operators(uint64_t *seed)
{
    enum { WORDS = 6, OPS = 150 };
    static char model[SPAN];
    static struct tern_op ops[OPS];
    static uint64_t expected[OPS];
    int from = (int)(test_random(seed) % PES), to = (int)(test_random(seed) % PES),
        count = 1 + (int)(test_random(seed) % OPS);

    memcpy(model, spans[to], SPAN);
    for (int i = 0; i < count; i++) {
        uint8_t amo = (uint8_t)(test_random(seed) % TERN_AMO_COUNT);
        unsigned bytes = test_random(seed) % 2 ? 8 : 4;
        uint64_t offset = (test_random(seed) % WORDS) * 8 + (bytes == 4 ? test_random(seed) % 2 * 4 : 0), old = 0, now;
        uint64_t value, compare;

        offset += test_random(seed) % 2 ? 2 * HOLE : 0;
        memcpy(&old, model + offset, bytes);
        value = random_operand(seed, amo, bytes);
        compare = test_random(seed) % 2 ? old : random_operand(seed, amo, bytes);
        now = bytes == 4 ? model4(amo, (uint32_t)old, (uint32_t)value, (uint32_t)compare)
                         : model8(amo, old, value, compare);
        memcpy(model + offset, &now, bytes);
        expected[i] = old;
        op_add(from, to, &ops[i], amo, bytes, offset, value, compare);
    }
    turn_all();
    for (int i = 0; i < count; i++)
        CHECK(ops[i].state == TERN_OP_FREE && ops[i].value == expected[i],
              "PE %d to PE %d: operation %d of %d (operator %d, %llu bytes) fetched %llx, not %llx", from, to, i, count,
              ops[i].amo, (unsigned long long)ops[i].bytes, (unsigned long long)ops[i].value,
              (unsigned long long)expected[i]);
    CHECK(!memcmp(model, spans[to], SPAN), "PE %d to PE %d: memory differs after %d operations", from, to, count);
}

/* ---- batches and refusals ---------------------------------------------------------------------------------------- */

static void check_batches(void)
{
    static struct tern_op ops[100];
    struct tern_proxy_thread *t = &threads[0][1];
    struct tern_dest *dest = tern_dest_of(t, 1);
    int before = atomic_load(&sent);

    CHECK(!tern_rpc_send(t, dest), "nothing to send");
    for (int i = 0; i < 100; i++)
        op_add(0, 1, &ops[i], TERN_AMO_add, 8, 0, 1, 0);
    ops[90].rpc = false; /* as a put in between */
    CHECK(tern_rpc_send(t, dest) && dest->rpc_busy && dest->posted_count == 64 && dest->pending == &ops[64] &&
              dest->pending_count == 36,
          "the first batch: %u posted, %u pending", dest->posted_count, dest->pending_count);
    CHECK(!tern_rpc_send(t, dest), "a second batch before the first was answered");
    tern_rpc_poll(&threads[1][1]); /* the owner: 1 % 2 */
    CHECK(dest->rpc_busy, "an answer out of nowhere");
    tern_rpc_poll(t);
    CHECK(!dest->rpc_busy && dest->posted_count == 0 && ops[63].value == 63, "answers: %u posted", dest->posted_count);
    CHECK(tern_rpc_send(t, dest) && dest->posted_count == 26 && dest->pending == &ops[90], "up to the put");
    turn_all();
    CHECK(!tern_rpc_send(t, dest) && dest->first == &ops[90] && ops[89].value == 89, "the put is not ours");
    dest->pending = ops[90].next; /* it is posted, not complete */
    CHECK(!tern_rpc_send(t, dest), "an RPC left before an earlier operation was complete");
    dest->first = ops[90].next;
    ops[91].prev = NULL;
    CHECK(tern_rpc_send(t, dest), "the rest");
    turn_all();
    CHECK(!dest->first && ops[99].value == 98, "%llu", (unsigned long long)ops[99].value);
    CHECK(atomic_load(&sent) - before == 6, "%d messages", atomic_load(&sent) - before);
}

static void refuse(uint8_t amo, unsigned bytes, uint64_t offset)
{
    static char before[SPAN];
    struct tern_op bad, good;

    memcpy(before, spans[2], SPAN);
    op_add(1, 2, &bad, amo, bytes, offset, 1, 0);
    turn_all();
    CHECK(bad.state == TERN_OP_FREE && last_status == TERN_ERR_INVALID && strstr(tern_last_error(), "refused"),
          "operator %d of %u bytes at %llu: %s", amo, bytes, (unsigned long long)offset,
          tern_status_name((tern_status_t)last_status));
    CHECK(!memcmp(before, spans[2], SPAN), "operator %d of %u bytes at %llu was executed", amo, bytes,
          (unsigned long long)offset);
    op_add(1, 2, &good, TERN_AMO_fetch, 8, 0, 0, 0);
    turn_all();
    CHECK(last_status == TERN_OK, "the next one: %s", tern_status_name((tern_status_t)last_status));
}

static void check_refusals(void)
{
    memset(spans, 0x55, sizeof spans);
    refuse(TERN_AMO_add, 8, SPAN);
    refuse(TERN_AMO_add, 8, SPAN - 4);
    refuse(TERN_AMO_add, 4, SPAN);
    refuse(TERN_AMO_add, 8, HOLE);
    refuse(TERN_AMO_set, 4, 2 * HOLE - 4);
    refuse(TERN_AMO_add, 8, 4);
    refuse(TERN_AMO_swap, 4, 2);
    refuse(TERN_AMO_swap, 4, 1);
    refuse(TERN_AMO_add, 2, 0);
    refuse(TERN_AMO_add, 0, 0);
    refuse(TERN_AMO_add, 16, 0);
    refuse(TERN_AMO_COUNT, 8, 0);
    refuse(255, 8, 0);
    refuse(TERN_AMO_cas, 8, UINT64_MAX - 7);
    refuse(TERN_AMO_cas, 8, (uint64_t)1 << 63);
}

/* Messages that are no RPC, and answers that nobody waits for. */
static void check_noise(uint64_t *seed)
{
    struct {
        uint16_t kind, count;
        uint32_t thread;
        uint64_t batch;
        char rest[3000];
    } message;
    static const struct {
        uint16_t kind, count;
        uint32_t thread;
        size_t bytes;
    } bad[] = {{0, 1, 0, 48}, {3, 1, 0, 48}, {1, 0, 0, 16}, {1, 65, 0, 16 + 65 * 32}, {1, 1, 2, 48}, {1, 1, 0, 47},
               {1, 1, 0, 49}, {1, 2, 0, 48}, {2, 1, 0, 48}, {2, 1, UINT32_MAX, 32},   {2, 0, 0, 16}, {1, 1, 0, 15},
               {1, 1, 0, 1},  {1, 1, 0, 0}};
    struct tern_op op;
    int before = atomic_load(&aborts);

    for (size_t i = 0; i < sizeof message; i++)
        ((char *)&message)[i] = (char)test_random(seed);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        message.kind = bad[i].kind, message.count = bad[i].count, message.thread = bad[i].thread;
        tern_proxy_message(&rts[0], 1, &message, bad[i].bytes);
        CHECK(atomic_load(&aborts) == before + (int)i + 1, "message %zu was taken for an RPC", i);
    }
    before = atomic_load(&done_count[0]);
    op_add(0, 2, &op, TERN_AMO_add, 8, 0, 1, 0);
    CHECK(tern_rpc_send(&threads[0][0], tern_dest_of(&threads[0][0], 2)), "send");
    message.kind = 2, message.count = 1, message.thread = 0, message.batch = op.number + 1;
    tern_proxy_message(&rts[0], 2, &message, 32); /* another batch */
    tern_rpc_poll(&threads[0][0]);
    CHECK(atomic_load(&done_count[0]) == before, "an answer to another batch ended an operation");
    message.batch = op.number;
    tern_proxy_message(&rts[0], 1, &message, 32); /* another PE; it is thread 1's, too */
    tern_rpc_poll(&threads[0][0]);
    CHECK(atomic_load(&done_count[0]) == before, "another PE's answer ended an operation");
    turn_all();
    CHECK(atomic_load(&done_count[0]) == before + 1, "the right answer");
}

static void check_dead(void)
{
    struct tern_op op;
    struct tern_dest *dest = tern_dest_of(&threads[0][0], 2);

    op_add(0, 2, &op, TERN_AMO_add, 8, 0, 1, 0);
    dead = 2;
    CHECK(!tern_rpc_send(&threads[0][0], dest) && atomic_load(&fails) == 1 && !dest->rpc_busy, "a dead owner");
    dead = -1;
}

/* ---- concurrency ------------------------------------------------------------------------------------------------- */

#define EACH 3000

/* Every thread of every PE adds to the words of the PEs it serves; float sums are exact for small integers. */
static void *adder(void *arg)
{
    struct tern_proxy_thread *t = (struct tern_proxy_thread *)arg;
    int pe = t->px->rt->pe;
    struct tern_op *ops = (struct tern_op *)calloc(EACH, sizeof *ops);
    double one = 1;
    float one4 = 1;
    uint64_t one_word, one4_word = 0;
    int added = 0, mine = EACH / THREADS;

    memcpy(&one_word, &one, 8);
    memcpy(&one4_word, &one4, 4);
    for (int total = PES * EACH;
         atomic_load(&done_count[PES - 1]) + atomic_load(&done_count[0]) + atomic_load(&done_count[1]) < total;) {
        bool moved = false;
        for (int i = 0; i < 20 && added < mine; i++, added++) {
            int to = t->index, targets = (PES - t->index + THREADS - 1) / THREADS;
            to += added % targets * THREADS;
            if (added % 3 == 0)
                op_add(pe, to, &ops[added], TERN_AMO_add, 8, 64, 1, 0);
            else if (added % 3 == 1)
                op_add(pe, to, &ops[added], TERN_AMO_add_float, 8, 72, one_word, 0);
            else
                op_add(pe, to, &ops[added], TERN_AMO_add_float, 4, 80, one4_word, 0);
        }
        for (int to = t->index; to < PES; to += THREADS)
            moved |= tern_rpc_send(t, tern_dest_of(t, to));
        moved |= tern_rpc_poll(t);
        if (!moved)
            sched_yield();
    }
    free(ops);
    return NULL;
}

static void check_sums(void)
{
    pthread_t ids[PES][THREADS];
    uint64_t count = 0;
    double sum = 0;

    for (int pe = 0; pe < PES; pe++)
        for (int i = 0; i < THREADS; i++)
            REQUIRE(!pthread_create(&ids[pe][i], NULL, adder, &threads[pe][i]), "thread");
    for (int pe = 0; pe < PES; pe++)
        for (int i = 0; i < THREADS; i++)
            pthread_join(ids[pe][i], NULL);
    for (int pe = 0; pe < PES; pe++) {
        double d;
        float f;
        uint64_t n;
        memcpy(&n, spans[pe] + 64, 8), memcpy(&d, spans[pe] + 72, 8), memcpy(&f, spans[pe] + 80, 4);
        count += n;
        sum += d + (double)f;
    }
    CHECK(count == PES * EACH / 3, "%llu integer adds of %d", (unsigned long long)count, PES * EACH / 3);
    CHECK(sum == PES * EACH / 3 * 2, "%f float adds of %d", sum, PES * EACH / 3 * 2);
}

int main(void)
{
    uint64_t seed = test_seed();
    const struct tern_transport *const transports[] = {NULL, &with_words};

    atomic_store(&tern_log_level, TERN_LOG_NONE);
    for (int i = 0; i < 2; i++) {
        if (!i && strcmp(tern_device_name(), "cpu"))
            continue; /* heaps are GPU memory */
        reset(transports[i]);
        for (int round = 0; round < 300 && !test_failures; round++)
            check_operators(&seed);
        end();
        reset(transports[i]);
        check_batches();
        check_refusals();
        check_noise(&seed);
        atomic_store(&fails, 0);
        check_dead();
        end();
        reset(transports[i]);
        check_sums();
        end();
    }
    return test_end("rpc");
}
