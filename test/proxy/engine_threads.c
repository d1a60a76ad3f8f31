/*
 * engine_threads.c - the proxy's own threads on the null transport, with host producers in the place of kernels: rings
 * that all share, answers that somebody waits for, atomics by RPC that must add up, quiets of the host, dumps and
 * deaths meanwhile, an abort that ends the wait of the host. Also under ThreadSanitizer.
 */
#include <pthread.h>
#include <sched.h>

#include "proxy/engine_rig.h"

#define PES 6
#define CHANNELS 2
#define PRODUCERS 4
#define WORDS 8

static struct rig rig;
static int each; /* entries of a producer */
static _Alignas(64) uint64_t words[WORDS];
static _Atomic uint64_t slots[8][CHANNELS]; /* by thread: those that are free */
static _Atomic int producing;

static int slot_take(int thread, int channel)
{
    for (;;) {
        uint64_t free_slots = atomic_load(&slots[thread][channel]);
        int slot = free_slots ? __builtin_ctzll(free_slots) : -1;
        if (slot >= 0 && (atomic_fetch_and(&slots[thread][channel], ~(1ull << slot)) >> slot & 1))
            return slot;
        sched_yield();
    }
}

/* Push an entry whose first or last unit has the slot in it, and wait for its answer. */
static uint64_t wait_answer(int thread, int channel, int slot, uint64_t ticket)
{
    uint64_t value = 0;
    int status;
    while ((status = rig_reply(&rig, thread, channel, (unsigned)slot, ticket, &value)) < 0) {
        REQUIRE(!rig_aborts, "%s", rig_abort_text);
        sched_yield();
    }
    CHECK(status == TERN_OK, "status %d", status);
    atomic_fetch_or(&slots[thread][channel], 1ull << slot);
    return value;
}

static void *producer(void *arg)
{
    int self = (int)(intptr_t)arg, channel = self % CHANNELS;
    uint64_t random = (uint64_t)self + 77;

    for (int i = 0; i < each; i++) {
        int pe = (int)(test_random(&random) % PES), thread = pe % rig.px->threads, slot;
        uint64_t ticket;
        switch (i % 8) {
        case 0:
            slot = slot_take(thread, channel);
            ticket = rig_plain(&rig, channel, TERN_ENTRY_quiet, pe, (unsigned)slot);
            wait_answer(thread, channel, slot, ticket);
            break;
        case 1:
            slot = slot_take(thread, channel);
            ticket = rig_amo(&rig, channel, pe, 8 * (unsigned)(i / 8 % WORDS), TERN_AMO_add, 1, 1, (unsigned)slot);
            wait_answer(thread, channel, slot, ticket);
            break;
        case 2:
            rig_amo(&rig, channel, pe, 8 * (unsigned)(i / 8 % WORDS), TERN_AMO_add, 1, 0, 0);
            break;
        case 3: {
            tern_unit_t u[3] = {tern_entry_long(TERN_ENTRY_put_l, 2, (unsigned)pe, 5, 17), tern_entry_local(0, 3)};
            slot = slot_take(thread, channel);
            u[2] = tern_entry_plain(TERN_ENTRY_reply, (unsigned)pe, (unsigned)slot);
            ticket = rig_push(&rig, thread, channel, u, 3);
            wait_answer(thread, channel, slot, ticket + 2);
            break;
        }
        case 4:
            for (int t = 0; t < rig.px->threads; t++)
                rig_plain(&rig, channel, TERN_ENTRY_fence, t, 0);
            break;
        default:
            rig_put(&rig, channel, pe, 16 * (test_random(&random) % 64), 16);
        }
    }
    atomic_fetch_sub(&producing, 1);
    return NULL;
}

static void open_threads(int threads, const struct tern_transport *transport, void *span)
{
    rig_open(&rig, &(struct rig_config){
                       .n_pes = PES, .threads = threads, .channels = CHANNELS, .mask = true, .transport = transport});
    rig.rt.span = span;
    for (int t = 0; t < threads; t++) {
        for (int c = 0; c < CHANNELS; c++)
            atomic_store(&slots[t][c], ~0ull);
    }
    REQUIRE(tern_proxy_start(&rig.rt) == TERN_OK, "start");
}

static enum tern_post skip(struct tern_proxy_thread *t, struct tern_op *op)
{
    return tern_transport_null.post(t, op);
}

/* Null, but atomics are RPCs. */
static const struct tern_transport without_atomics = {.name = "no atomics", .caps = TERN_NET_ORDERED, .post = skip};

static void check_program(int threads, bool rpc)
{
    pthread_t ids[PRODUCERS];
    uint64_t sum = 0;

    memset(words, 0, sizeof words);
    open_threads(threads, rpc ? &without_atomics : NULL, words);
    atomic_store(&producing, PRODUCERS);
    for (int i = 0; i < PRODUCERS; i++)
        REQUIRE(!pthread_create(&ids[i], NULL, producer, (void *)(intptr_t)i), "thread");
    atomic_store(&tern_log_level, TERN_LOG_NONE);
    for (int i = 0; atomic_load(&producing); i++) {
        REQUIRE(tern_proxy_quiet(&rig.rt) == TERN_OK, "quiet: %s", rig_abort_text);
        if (i % 16 == 0)
            tern_proxy_dump(&rig.rt, "test");
        sched_yield();
    }
    atomic_store(&tern_log_level, TERN_LOG_WARN);
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(ids[i], NULL);
    CHECK(tern_proxy_quiet(&rig.rt) == TERN_OK, "quiet");
    for (int i = 0; i < WORDS; i++)
        sum += __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
    CHECK(sum == (rpc ? (uint64_t)PRODUCERS * (uint64_t)(each / 4) : 0), "%d threads: %llu added", threads,
          (unsigned long long)sum);
    CHECK(!rig_aborts, "%s", rig_abort_text);
    rig_close(&rig);
}

/* ---- data ---------------------------------------------------------------------------------------------------------
 */

#define AREA 64

static char far_memory[PES][PRODUCERS * AREA], near_memory[PRODUCERS * 2 * AREA];

/* Plain accesses, so that ThreadSanitizer sees what entry and answer do not order. */
static enum tern_post mirror_post(struct tern_proxy_thread *t, struct tern_op *op)
{
    char *far = far_memory[op->dest->pe] + op->remote, *near = tern_op_local(t, op);

    memcpy(op->kind == TERN_OP_PUT ? far : near, op->kind == TERN_OP_PUT ? near : far, op->bytes);
    tern_op_done(t, op, TERN_OK);
    return TERN_POSTED;
}

static const struct tern_transport mirror = {.name = "mirror", .caps = TERN_NET_ORDERED, .post = mirror_post};

static void copy_and_wait(unsigned op, int channel, int pe, uint64_t far, uint64_t near)
{
    int thread = pe % rig.px->threads, slot = slot_take(thread, channel);
    tern_unit_t u[2] = {tern_entry_short(op, 1, (unsigned)pe, far, near, AREA),
                        tern_entry_plain(TERN_ENTRY_reply, (unsigned)pe, (unsigned)slot)};
    wait_answer(thread, channel, slot, rig_push(&rig, thread, channel, u, 2) + 1);
}

static void *copier(void *arg)
{
    int self = (int)(intptr_t)arg;
    char *source = near_memory + self * 2 * AREA, *back = source + AREA;

    for (int i = 0; i < each / 8; i++) {
        int pe = i % PES, channel = i % CHANNELS;
        memset(source, i ^ self, AREA);
        copy_and_wait(TERN_ENTRY_put_s, channel, pe, (uint64_t)self * AREA, (uint64_t)self * 2 * AREA);
        memset(source, -1, AREA); /* may be used again */
        copy_and_wait(TERN_ENTRY_get_s, channel, pe, (uint64_t)self * AREA, (uint64_t)self * 2 * AREA + AREA);
        for (int k = 0; k < AREA; k++)
            REQUIRE(back[k] == (char)(i ^ self), "byte %d of round %d", k, i);
    }
    return NULL;
}

static void check_data(int threads)
{
    pthread_t ids[PRODUCERS];

    open_threads(threads, &mirror, near_memory);
    for (int i = 0; i < PRODUCERS; i++)
        REQUIRE(!pthread_create(&ids[i], NULL, copier, (void *)(intptr_t)i), "thread");
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(ids[i], NULL);
    rig_close(&rig);
}

/* ---- ends ---------------------------------------------------------------------------------------------------------
 */

/* A PE dies while its operations come: they are answered with it, those to others are not. */
static void check_death(void)
{
    bool seen = false;

    open_threads(2, NULL, words);
    atomic_store(&tern_log_level, TERN_LOG_NONE);
    for (int i = 0; i < 100000 && !seen; i++) {
        tern_unit_t u = tern_entry_g(3, 8, 3, 5), v = tern_entry_g(1, 8, 3, 6);
        uint64_t dead = rig_push(&rig, 1, 0, &u, 1), alive = rig_push(&rig, 1, 0, &v, 1);
        if (i == 10)
            tern_proxy_dead(&rig.rt, 3);
        int status;
        while ((status = rig_reply(&rig, 1, 0, 5, dead, NULL)) < 0)
            sched_yield();
        CHECK(status == TERN_OK || (status == TERN_ERR_PEER_DEAD && i >= 10), "status %d", status);
        seen = status != TERN_OK;
        while ((status = rig_reply(&rig, 1, 0, 6, alive, NULL)) < 0)
            sched_yield();
        CHECK(status == TERN_OK, "status %d", status);
    }
    CHECK(seen, "told");
    CHECK(tern_proxy_quiet(&rig.rt) == TERN_ERR_PEER_DEAD, "the host's quiet tells it");
    CHECK(tern_proxy_quiet(&rig.rt) == TERN_OK, "once");
    rig_close(&rig);
    atomic_store(&tern_log_level, TERN_LOG_WARN);
}

static _Atomic bool filled;

static void *fill_soon(void *arg)
{
    const struct timespec ms = {0, 20000000};
    nanosleep(&ms, NULL);
    atomic_store(&filled, true);
    rig_store(&rig, 0, 1, *(uint64_t *)arg, tern_entry_word(TERN_ENTRY_p64, 2, 8, 1));
    return NULL;
}

/* The entry of a kernel that has ended lies behind the hole of one that has not: the host's quiet covers it. */
static void check_hole(void)
{
    pthread_t id;
    uint64_t hole;

    open_threads(1, NULL, words);
    hole = rig_draw(&rig, 0, 1, 1);
    rig_word(&rig, 1, 2, 8, 1);
    REQUIRE(!pthread_create(&id, NULL, fill_soon, &hole), "thread");
    CHECK(tern_proxy_quiet(&rig.rt) == TERN_OK && atomic_load(&filled), "waits for what is behind the hole");
    pthread_join(id, NULL);
    rig_close(&rig);
}

static void *abort_soon(void *arg)
{
    const struct timespec ms = {0, 20000000};
    nanosleep(&ms, NULL);
    tern_control_abort(arg, TERN_ERR_ABORTED, 0, "the test says so");
    return NULL;
}

static enum tern_post hold(struct tern_proxy_thread *t, struct tern_op *op)
{
    (void)t, (void)op;
    return TERN_POST_BUSY;
}

/* Nothing completes; abort ends the host's quiet, and stop does not wait. */
static void check_abort(void)
{
    static const struct tern_transport never = {.name = "never", .post = hold};
    pthread_t id;

    rig_open(&rig, &(struct rig_config){.n_pes = PES, .threads = 1, .channels = 1, .transport = &never});
    REQUIRE(tern_proxy_start(&rig.rt) == TERN_OK, "start");
    rig_word(&rig, 0, 2, 8, 1);
    REQUIRE(!pthread_create(&id, NULL, abort_soon, &rig.rt), "thread");
    atomic_store(&tern_log_level, TERN_LOG_NONE);
    CHECK(tern_proxy_quiet(&rig.rt) == TERN_ERR_ABORTED, "ended by the abort");
    tern_proxy_dump(&rig.rt, "after an abort");
    pthread_join(id, NULL);
    tern_proxy_stop(&rig.rt);
    tern_dest_fail(rig.t, tern_dest_of(rig.t, 2), TERN_ERR_ABORTED, NULL, "for the pool's sake");
    rig_close(&rig);
    atomic_store(&tern_log_level, TERN_LOG_WARN);
}

int main(void)
{
    const char *scale = getenv("TEST_EACH");
    each = scale ? atoi(scale) : 4000;
    check_program(1, false);
    check_program(3, false);
    check_program(1, true);
    check_program(3, true);
    check_data(1);
    check_data(3);
    check_death();
    check_hole();
    check_abort();
    return test_end("engine_threads");
}
