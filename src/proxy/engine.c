/*
 * engine.c - the body of a proxy thread: one turn after the other over rings, destinations and transport; idling; the
 * host's quiet; deaths; operations that take too long; the dump.
 */
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "proxy/engine.h"

#define TURN_ENTRIES 64      /* of a ring in a turn */
#define PREFETCH 2           /* rings ahead: a line that a kernel has written takes some 100 ns */
#define TURN_BATCH 128       /* entries taken before they are posted, while they are in the cache */
#define CLOCK_TURNS 64u      /* between looks at the clock */
#define SPIN_NS 200000u      /* of empty turns before naps begin */
#define SPIN_TURNS 16u       /* of them between looks at the clock */
#define FEW_CORES_POLLS 100u /* empty turns before naps begin where each gives the core away */
#define YIELD_TURNS 16u
#define NAP_US 50u
#define NAP_SLACK_NS 1000ul /* by which the kernel may prolong a nap */
#define WATCH_MS 100u       /* between looks for operations that take long */

static uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- dump ------------------------------------------------------------------------------------------------------- */

static void dump_dest(const struct tern_proxy_thread *t, const struct tern_dest *dest)
{
    char oldest[160] = "nothing is under way";

    if (!dest->ops && !dest->first)
        return;
    if (dest->first)
        tern_op_text(t, dest->first, oldest, sizeof oldest);
    tern_log(TERN_LOG_WARN,
             "dump: PE %d: %llu operations, %llu bytes posted, the last one number %llu of %llu bytes; %u under way, "
             "%u held%s%s; "
             "oldest: %s, for %llu ms",
             dest->pe, (unsigned long long)dest->ops, (unsigned long long)dest->bytes,
             (unsigned long long)dest->last_number, (unsigned long long)dest->last_bytes, dest->posted_count,
             dest->pending_count, dest->rpc_busy ? ", waits for atomics" : "",
             dest->failed != TERN_OK ? ", failed" : "", oldest,
             (unsigned long long)(dest->first ? t->now_ms - dest->first->taken_ms : 0));
}

void tern_engine_dump(struct tern_proxy_thread *t, const char *why)
{
    const struct tern_proxy *px = t->px;

    tern_log(TERN_LOG_WARN,
             "dump (%s): proxy thread %d of %d, transport %s: %llu turns, %llu naps, %llu operations taken, %u of them "
             "not complete",
             why, t->index, px->threads, px->transport ? px->transport->name : "none", (unsigned long long)t->polls,
             (unsigned long long)t->naps, (unsigned long long)t->number, px->pool_ops - t->free_count);
    for (int c = 0; c < px->channels && t->rings; c++) {
        const struct tern_ring_in *ring = &t->rings[c];
        const tern_unit_t *next = &ring->units[ring->next & (px->units - 1)];
        if (ring->entries || ring->stalls)
            tern_log(
                TERN_LOG_WARN, "dump: ring %d: %llu entries, %llu units taken, %llu stalls; next unit %016llx %016llx",
                c, (unsigned long long)ring->entries, (unsigned long long)ring->next, (unsigned long long)ring->stalls,
                (unsigned long long)__atomic_load_n(&next->w[0], __ATOMIC_RELAXED),
                (unsigned long long)__atomic_load_n(&next->w[1], __ATOMIC_RELAXED));
    }
    for (int i = 0; i < t->dest_count && t->dests; i++)
        dump_dest(t, &t->dests[i]);
}

/* ---- what comes from other threads ------------------------------------------------------------------------------ */

/*
 * No unit of the ring waits to be taken: a hole that a running kernel is about to fill may have an ended kernel's entry behind
 * it.
 */
static bool ring_empty(const struct tern_proxy_thread *t, int channel)
{
    const struct tern_ring_in *ring = &t->rings[channel];
    uint32_t units = t->px->units;

    for (uint64_t ticket = ring->next; ticket < ring->next + units; ticket++) {
        uint64_t word = __atomic_load_n(&ring->units[ticket & (units - 1)].w[0], __ATOMIC_ACQUIRE);
        if ((word & TERN_UNIT_PARITY) == TERN_UNIT_LAP(ticket, units))
            return false;
    }
    return true;
}

/* The rings must be empty once; then everything taken so far must be complete. */
static bool host_quiet_turn(struct tern_proxy_thread *t)
{
    uint32_t asked = atomic_load_explicit(&t->host_quiet_asked, memory_order_acquire);

    if (asked == atomic_load_explicit(&t->host_quiet_done, memory_order_relaxed) || t->host_ring < 0)
        return false;
    int taken = 0;
    while (t->host_ring < t->px->channels && !(taken = tern_intake_ring(t, t->host_ring, TURN_ENTRIES)) &&
           ring_empty(t, t->host_ring))
        t->host_ring++;
    if (t->host_ring < t->px->channels)
        return taken > 0;
    t->host_ring = -1;
    t->host_quiet = (struct tern_quiet){.number = t->number, .ticket = asked, .host = true};
    tern_quiet_begin(t, &t->host_quiet);
    return true;
}

static void deaths_look(struct tern_proxy_thread *t)
{
    uint32_t told = atomic_load_explicit(&t->deaths_told, memory_order_acquire);

    if (told == t->deaths_seen)
        return;
    t->deaths_seen = told;
    for (int i = 0; i < t->dest_count; i++) {
        if (atomic_load(&t->dests[i].dead))
            tern_dest_fail(t, &t->dests[i], TERN_ERR_PEER_DEAD, t->dests[i].first, "the PE died");
    }
}

static void dump_look(struct tern_proxy_thread *t)
{
    uint32_t asked = atomic_load_explicit(&t->dump_asked, memory_order_acquire);

    if (asked == atomic_load_explicit(&t->dump_done, memory_order_relaxed))
        return;
    tern_engine_dump(t, atomic_load(&t->px->dump_why));
    atomic_store_explicit(&t->dump_done, asked, memory_order_release);
}

/*
 * What nobody asks for is made to complete, too. An operation that is older than the deadline of the library's waits
 * ends the job: whoever waits for it has none.
 */
static void late_look(struct tern_proxy_thread *t)
{
    struct tern_rt *rt = t->px->rt;
    const struct tern_op *op = t->all_first;
    char text[160];

    if (t->now_ms - t->watched_ms < WATCH_MS)
        return;
    t->watched_ms = t->now_ms;
    if (!op || t->now_ms - op->taken_ms < WATCH_MS)
        return;
    if (t->now_ms - op->taken_ms > (uint64_t)rt->env.device_timeout_ms) {
        tern_op_text(t, op, text, sizeof text);
        tern_engine_dump(t, "timeout");
        tern_control_abort(
            rt, TERN_ERR_TIMEOUT, op->dest->pe,
            "%s is not complete after %llu ms; is the PE stopped, or the network down? TERN_DEVICE_TIMEOUT_MS "
            "sets the bound",
            text, (unsigned long long)(t->now_ms - op->taken_ms));
        return;
    }
    for (int i = 0; i < t->dest_count; i++)
        tern_dest_want_all(t, &t->dests[i]);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void seldom(struct tern_proxy_thread *t)
{
    t->now_ms = clock_ns() / 1000000u;
    deaths_look(t);
    dump_look(t);
    late_look(t);
}

bool tern_engine_turn(struct tern_proxy_thread *t)
{
    const struct tern_proxy *px = t->px;
    int batch = 0;
    bool any = false;

    if (t->turns++ % CLOCK_TURNS == 0)
        seldom(t);
    for (int c = 0; c < px->channels; c++) {
        if (c + PREFETCH < px->channels)
            tern_intake_prefetch(t, c + PREFETCH, 0);
        int taken = tern_intake_ring(t, c, TURN_ENTRIES);
        if (taken <= 0)
            continue;
        any = true;
        batch += taken;
        if (batch < TURN_BATCH)
            continue;
        tern_dests_pump(t);
        batch = 0;
    }
    if (t->active)
        any |= tern_dests_pump(t);
    if (px->transport && px->transport->poll)
        any |= px->transport->poll(t);
    any |= tern_rpc_poll(t);
    any |= host_quiet_turn(t);
    t->polls++;
    t->busy += any;
    return any;
}

static void nap(struct tern_proxy_thread *t)
{
    const struct tern_transport *transport = t->px->transport;

    t->naps++;
    if (transport && transport->wait)
        transport->wait(t, NAP_US);
    else
        usleep(NAP_US);
    t->turns = 0; /* the clock has gone on */
}

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* After the `empty`th empty turn in a row, the first of which was at `since`. */
static void idle(struct tern_proxy_thread *t, uint32_t empty, uint64_t *since)
{
    if (t->px->few_cores) {
        sched_yield();
        if (empty > FEW_CORES_POLLS)
            nap(t);
        return;
    }
    if (empty % YIELD_TURNS)
        pause_core();
    else
        sched_yield(); /* costs little where nobody waits for the core, and a lot is won where somebody does */
    if (empty == 1)
        *since = clock_ns();
    else if (empty % SPIN_TURNS == 0 && clock_ns() - *since > SPIN_NS)
        nap(t);
}

static void thread_prepare(struct tern_proxy_thread *t)
{
    char name[16];

    snprintf(name, sizeof name, "tern-proxy-%d", t->index);
    pthread_setname_np(pthread_self(), name);
    prctl(PR_SET_TIMERSLACK, NAP_SLACK_NS, 0, 0, 0);
    tern_proxy_pin(t);
}

void *tern_engine_run(void *thread)
{
    struct tern_proxy_thread *t = thread;
    struct tern_proxy *px = t->px;
    uint32_t empty = 0;
    uint64_t since = 0;

    thread_prepare(t);
    while (!atomic_load_explicit(&px->stop, memory_order_acquire)) {
        if (atomic_load_explicit(&px->rt->abort, memory_order_acquire)) { /* rings are not used again */
            dump_look(t);
            usleep(1000);
        } else if (tern_engine_turn(t)) {
            empty = 0;
        } else {
            idle(t, ++empty, &since);
        }
    }
    return NULL;
}
