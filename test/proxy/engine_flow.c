/*
 * engine_flow.c - bounds and failures: what a destination may owe, who stalls then and who does not; every answer that
 * a lost destination owes, with the right status, whatever operation was the one that failed; no operation lost from
 * its pool.
 */
#include "proxy/engine_rig.h"

#define PENDING 64

static uint64_t seed;
static struct rig rig;

/* ---- bounds ----------------------------------------------------------------------------------------------------- */

static void check_slow(void)
{
    int count = 0;

    rig_open(&rig, &(struct rig_config){
                       .n_pes = 4, .threads = 1, .channels = 2, .pending = PENDING, .transport = &rig_unordered});
    rig_net.credits[1] = 5;
    while (rig_space(&rig, 0, 0) > 0) {
        rig_word(&rig, 0, 1, 8, 1);
        if (++count % 10 == 0)
            rig_settle(&rig);
        REQUIRE(count < 10000, "the ring fills up");
    }
    rig_settle(&rig);
    CHECK(rig.t->dests[1].posted_count == 5 && rig.t->dests[1].pending_count == PENDING, "%u posted, %u held",
          rig.t->dests[1].posted_count, rig.t->dests[1].pending_count);
    CHECK(rig_space(&rig, 0, 0) == 0 && count == (int)rig.px->units + PENDING + 5, "%d entries, then the ring is full",
          count);
    CHECK(rig.t->rings[0].stalls > 0 && rig.t->rings[1].stalls == 0, "counted");
    rig_net.at_once = true;
    for (int i = 0; i < 5000; i++) {
        rig_word(&rig, 1, i % 2 ? 0 : 3, 8, 1);
        tern_engine_turn(rig.t);
    }
    rig_settle(&rig);
    CHECK(rig.t->number == PENDING + 5 + 5000, "one slow destination stops no other one");
    rig_word(&rig, 1, 1, 16, 1); /* but whoever asks for it */
    rig_word(&rig, 1, 0, 16, 1);
    rig_settle(&rig);
    CHECK(rig.t->number == PENDING + 5 + 5000 && rig_space(&rig, 0, 1) == rig.px->units - 2,
          "the ring that does waits");
    rig_net.at_once = false;
    rig_net.credits[1] = 1;
    rig_drain(&rig, &seed);
    CHECK(rig.t->number == 5000 + (uint64_t)count + 2, "all are taken in the end");
    CHECK(!rig_aborts, "%s", rig_abort_text);
    rig_close(&rig);
}

/* Posted operations count, too: a transport without bound cannot have the pool. Completion is asked for by then. */
static void check_unbounded(void)
{
    rig_open(&rig, &(struct rig_config){
                       .n_pes = 16, .threads = 1, .channels = 16, .pending = PENDING, .transport = &rig_unordered});
    for (int c = 0; c < 15; c++) {
        for (int i = 0; i < 4 * PENDING; i++)
            rig_word(&rig, c, c, 8, 1);
    }
    rig_settle(&rig);
    for (int pe = 0; pe < 15; pe++) {
        const struct tern_dest *dest = &rig.t->dests[pe];
        CHECK(dest->posted_count + dest->pending_count == 2 * PENDING, "PE %d owes %u", pe, dest->posted_count);
        CHECK(rig_net.flushes[pe] && rig_net.flush_number[pe] == dest->last->number, "and is flushed");
    }
    rig_word(&rig, 15, 15, 8, 1);
    rig_settle(&rig);
    CHECK(rig.t->dests[15].posted_count == 1, "there is room for another one");
    rig_drain(&rig, &seed);
    rig_close(&rig);
}

/* A put with an ADD signal is taken with both of its operations, or not yet. */
static void check_room_for_two(void)
{
    tern_unit_t u[2] = {tern_entry_short(TERN_ENTRY_put_s_sig, 2, 1, 32, 64, 16), tern_entry_signal(8, 5, 1)};

    rig_open(&rig, &(struct rig_config){
                       .n_pes = 2, .threads = 1, .channels = 1, .pending = PENDING, .transport = &rig_ordered});
    rig_net.credits[1] = 0;
    for (int i = 0; i < PENDING - 1; i++)
        rig_word(&rig, 0, 1, 8, 1);
    rig_push(&rig, 0, 0, u, 2);
    rig_settle(&rig);
    CHECK(rig.t->number == PENDING - 1, "not half of it: %llu", (unsigned long long)rig.t->number);
    rig_net.credits[1] = 1;
    rig_drain(&rig, &seed);
    CHECK(rig.t->number == PENDING + 1 && rig_net.loads[1] == 5, "both");
    rig_close(&rig);
}

/* What nobody asks for is made to complete all the same. */
static void check_forgotten(void)
{
    rig_open(&rig, &(struct rig_config){.n_pes = 2, .threads = 1, .channels = 1, .transport = &rig_unordered});
    rig_word(&rig, 0, 1, 8, 1);
    rig_settle(&rig);
    CHECK(!rig_net.flushes[1], "not at once");
    struct timespec ms = {0, 10000000};
    for (int i = 0; i < 200 && !rig_net.flushes[1]; i++) {
        nanosleep(&ms, NULL);
        for (int k = 0; k < 64; k++)
            tern_engine_turn(rig.t);
    }
    CHECK(rig_net.flushes[1] == 1, "after a while");
    rig_drain(&rig, &seed);
    rig_close(&rig);
}

/* ---- failures --------------------------------------------------------------------------------------------------- */

enum { PUT_REPLY, GET_REPLY, G, FETCH, SIGNAL_REPLY, KINDS };

/* An answered operation to a PE; the slot is its number. @return the ticket that is answered */
static uint64_t answered(int kind, int channel, int pe, unsigned slot)
{
    tern_unit_t u[3];
    unsigned count = 1;

    switch (kind) {
    case G:
        u[0] = tern_entry_g((unsigned)pe, 64, 3, slot);
        return rig_push(&rig, 0, channel, u, 1);
    case FETCH:
        return rig_amo(&rig, channel, pe, 8, TERN_AMO_fetch, 0, 1, slot);
    case SIGNAL_REPLY:
        u[count++] = tern_entry_signal(64, 1, slot & 1);
        u[0] = tern_entry_short(TERN_ENTRY_put_s_sig, 2, (unsigned)pe, 32, 64, 16);
        break;
    default:
        u[0] = tern_entry_short(kind == PUT_REPLY ? TERN_ENTRY_put_s : TERN_ENTRY_get_s, 1, (unsigned)pe, 32, 64, 16);
    }
    u[count++] = tern_entry_plain(TERN_ENTRY_reply, (unsigned)pe, slot);
    return rig_push(&rig, 0, channel, u, count) + count - 1;
}

/*
 * A mixed program to PEs 1 and 2 with everything held, then post k is refused (how 0), fails later (1), or the PE dies
 * (2). All that is answered to PE 1 is answered with the status, what was complete before excepted; PE 2 does not
 * notice.
 */
static void fail_program(const struct tern_transport *transport, int k, int how, bool mask)
{
    uint64_t tickets[2][24];
    int statuses[2][24], lost = 0;
    tern_status_t status = how == 2 ? TERN_ERR_PEER_DEAD : TERN_ERR_TRANSPORT;

    rig_open(&rig,
             &(struct rig_config){
                 .n_pes = 4, .threads = 1, .channels = 2, .pending = PENDING, .mask = mask, .transport = transport});
    rig_net.credits[1] = rig_net.credits[2] = 4;
    if (how == 0)
        rig_net.fail_at = k;
    for (unsigned i = 0; i < 24; i++) {
        tickets[0][i] = answered((int)i % KINDS, 0, 1, i);
        rig_word(&rig, 0, 1, 8, i);
    }
    uint64_t all = rig_plain(&rig, 0, TERN_ENTRY_quiet, TERN_PE_ALL, 50),
             one = rig_plain(&rig, 0, TERN_ENTRY_quiet, 1, 51);
    for (int n = 0; n <= k && !rig.t->dests[1].failed; n++) { /* post by post, each completed */
        rig_settle(&rig);
        int open = rig_first_open();
        if (rig.t->dests[1].failed || open < 0)
            break;
        if (how == 1 && n == k)
            rig_done(&rig, open, status);
        else if (how == 2 && n == k)
            tern_proxy_dead(&rig.rt, 1);
        else
            rig_done(&rig, open, TERN_OK);
    }
    for (int i = 0; i < 100; i++) /* deaths are looked for now and then */
        rig_settle(&rig);
    if (!mask) {
        char text[64];
        snprintf(text, sizeof text, "to PE 1 (proxy thread 0, ring 0) failed: ");
        CHECK(rig_aborts == 1 && rig_abort_status == status && rig_abort_pe == 1 && strstr(rig_abort_text, text) &&
                  strstr(rig_abort_text, " bytes"),
              "post %d, way %d: %s", k, how, rig_abort_text);
        rig_close(&rig);
        return;
    }
    for (unsigned i = 0; i < 24; i++) {
        statuses[0][i] = rig_reply(&rig, 0, 0, i, tickets[0][i], NULL);
        lost += statuses[0][i] == (int)status;
        CHECK(statuses[0][i] == (int)status || (statuses[0][i] == TERN_OK && !lost), "post %d, way %d: answer %u is %d",
              k, how, i, statuses[0][i]);
    }
    CHECK(rig_reply(&rig, 0, 0, 50, all, NULL) == (int)status && rig_reply(&rig, 0, 0, 51, one, NULL) == (int)status,
          "post %d, way %d: quiets that were under way tell it: %d, %d", k, how, rig_reply(&rig, 0, 0, 50, all, NULL),
          rig_reply(&rig, 0, 0, 51, one, NULL));
    /* later ones are answered at once, and told again; another PE goes on */
    for (unsigned i = 0; i < 24; i++) {
        tickets[1][i] = answered((int)i % KINDS, 1, i % 2 ? 2 : 1, i);
        rig_word(&rig, 1, 1, 8, i);
    }
    all = rig_plain(&rig, 1, TERN_ENTRY_quiet, TERN_PE_ALL, 50), one = rig_plain(&rig, 1, TERN_ENTRY_quiet, 2, 51);
    rig_drain(&rig, &seed);
    for (unsigned i = 0; i < 24; i++) {
        statuses[1][i] = rig_reply(&rig, 0, 1, i, tickets[1][i], NULL);
        CHECK(statuses[1][i] == (i % 2 ? TERN_OK : (int)status), "post %d, way %d: later answer %u is %d", k, how, i,
              statuses[1][i]);
    }
    CHECK(rig_reply(&rig, 0, 1, 50, all, NULL) == (int)status && rig_reply(&rig, 0, 1, 51, one, NULL) == TERN_OK,
          "post %d, way %d: quiets after it", k, how);
    all = rig_plain(&rig, 1, TERN_ENTRY_quiet, TERN_PE_ALL, 50);
    rig_settle(&rig);
    CHECK(rig_reply(&rig, 0, 1, 50, all, NULL) == TERN_OK, "a failure is told once");
    CHECK(!rig_aborts, "%s", rig_abort_text);
    rig_close(&rig);
}

static void check_failures(void)
{
    static const struct tern_transport *const transports[] = {&rig_unordered, &rig_ordered, &rig_amo_ordered};

    atomic_store(&tern_log_level, TERN_LOG_NONE);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 40 && !test_failures; k++) {
            for (int how = 0; how < 3; how++) {
                fail_program(transports[i], k, how, true);
                fail_program(transports[i], k, how, false);
            }
        }
    }
    atomic_store(&tern_log_level, TERN_LOG_WARN);
}

/* A quiet tells a failure before it though others after it have failed as well. */
static void check_failed_around(void)
{
    rig_open(&rig,
             &(struct rig_config){.n_pes = 2, .threads = 1, .channels = 1, .mask = true, .transport = &rig_unordered});
    atomic_store(&tern_log_level, TERN_LOG_NONE);
    rig_word(&rig, 0, 1, 8, 1);
    uint64_t ticket = rig_plain(&rig, 0, TERN_ENTRY_quiet, 1, 3);
    rig_word(&rig, 0, 1, 8, 1);
    rig_settle(&rig);
    rig_done(&rig, 1, TERN_ERR_TRANSPORT); /* the later one first */
    rig_settle(&rig);
    CHECK(rig_reply(&rig, 0, 0, 3, ticket, NULL) == TERN_ERR_TRANSPORT, "told");
    atomic_store(&tern_log_level, TERN_LOG_WARN);
    rig_close(&rig);
}

/* A REPLY that comes after its operation has failed tells so. */
static void check_failed_reply(void)
{
    tern_unit_t u = tern_entry_short(TERN_ENTRY_put_s, 1, 1, 32, 64, 16), r = tern_entry_plain(TERN_ENTRY_reply, 1, 9);

    rig_open(&rig,
             &(struct rig_config){.n_pes = 2, .threads = 1, .channels = 1, .mask = true, .transport = &rig_unordered});
    atomic_store(&tern_log_level, TERN_LOG_NONE);
    uint64_t ticket = rig_draw(&rig, 0, 0, 2);
    rig_store(&rig, 0, 0, ticket, u);
    rig_settle(&rig);
    rig_done(&rig, 0, TERN_ERR_TRANSPORT);
    rig_store(&rig, 0, 0, ticket + 1, r);
    rig_settle(&rig);
    CHECK(rig_reply(&rig, 0, 0, 9, ticket + 1, NULL) == TERN_ERR_TRANSPORT, "told");
    atomic_store(&tern_log_level, TERN_LOG_WARN);
    rig_close(&rig);
}

/* The owner dies with an atomic: whoever waits is answered; an answer that comes after all finds nobody. */
static void check_owner_death(void)
{
    rig_open(&rig,
             &(struct rig_config){.n_pes = 3, .threads = 1, .channels = 1, .mask = true, .transport = &rig_unordered});
    atomic_store(&tern_log_level, TERN_LOG_NONE);
    rig_hold_messages = true;
    uint64_t ticket = rig_amo(&rig, 0, 2, 8, TERN_AMO_add, 1, 1, 3);
    uint64_t behind = answered(PUT_REPLY, 0, 2, 4);
    rig_settle(&rig);
    CHECK(rig_reply(&rig, 0, 0, 3, ticket, NULL) < 0 && rig_net.count == 0, "under way, and nothing passes it");
    tern_proxy_dead(&rig.rt, 2);
    for (int i = 0; i < 100; i++)
        rig_settle(&rig);
    CHECK(rig_reply(&rig, 0, 0, 3, ticket, NULL) == TERN_ERR_PEER_DEAD &&
              rig_reply(&rig, 0, 0, 4, behind, NULL) == TERN_ERR_PEER_DEAD,
          "both are answered");
    rig_message_deliver(&rig);
    rig_settle(&rig);
    CHECK(rig_reply(&rig, 0, 0, 3, ticket, NULL) == TERN_ERR_PEER_DEAD, "and stay so");
    atomic_store(&tern_log_level, TERN_LOG_WARN);
    rig_close(&rig);
}

/* The owner of a word refuses an address: the program's fault, which ends the job also with masks. */
static void check_refused_atomic(void)
{
    rig_open(&rig,
             &(struct rig_config){.n_pes = 2, .threads = 1, .channels = 1, .mask = true, .transport = &rig_unordered});
    atomic_store(&tern_log_level, TERN_LOG_NONE);
    uint64_t ticket = rig_amo(&rig, 0, 1, 12, TERN_AMO_add, 1, 1, 3);
    rig_settle(&rig);
    atomic_store(&tern_log_level, TERN_LOG_WARN);
    CHECK(rig_aborts == 1 && rig_abort_status == TERN_ERR_INVALID &&
              strstr(rig_abort_text, "atomic of 8 bytes to PE 1"),
          "%s", rig_abort_text);
    CHECK(rig_reply(&rig, 0, 0, 3, ticket, NULL) == TERN_ERR_INVALID, "and is answered");
    rig_close(&rig);
}

static void check_timeout(void)
{
    struct timespec ms = {0, 20000000};

    rig_open(&rig, &(struct rig_config){
                       .n_pes = 2, .threads = 1, .channels = 4, .timeout_ms = 150, .transport = &rig_unordered});
    atomic_store(&tern_log_level, TERN_LOG_NONE);
    rig_put(&rig, 3, 1, 32, 4096);
    for (int i = 0; i < 200 && !rig_aborts; i++) {
        for (int k = 0; k < 64; k++)
            tern_engine_turn(rig.t);
        CHECK(i > 3 || !rig_aborts, "not before its time");
        nanosleep(&ms, NULL);
    }
    atomic_store(&tern_log_level, TERN_LOG_WARN);
    CHECK(rig_aborts == 1 && rig_abort_status == TERN_ERR_TIMEOUT && rig_abort_pe == 1 &&
              strstr(rig_abort_text, "put of 4096 bytes to PE 1 (proxy thread 0, ring 3) is not complete after"),
          "%s", rig_abort_text);
    rig_done(&rig, 0, TERN_OK);
    rig_close(&rig);
}

int main(void)
{
    seed = test_seed();
    check_slow();
    check_unbounded();
    check_room_for_two();
    check_forgotten();
    check_failures();
    check_failed_around();
    check_failed_reply();
    check_owner_death();
    check_refused_atomic();
    check_timeout();
    return test_end("engine_flow");
}
