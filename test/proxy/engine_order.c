/*
 * engine_order.c - what may be posted when, and what is answered when, on a transport that completes what and when the
 * test says: fences, quiets, replies, put_signal, atomics by RPC; then random programs, whose every post and answer is
 * held against what the order demands.
 */
#include "proxy/engine_rig.h"

static uint64_t seed;
static struct rig rig;

static void begin(const struct tern_transport *transport)
{
    rig_open(&rig, &(struct rig_config){.n_pes = 4, .threads = 1, .channels = 4, .transport = transport});
}

/* Of the only thread. */
static int reply(int channel, unsigned slot, uint64_t ticket)
{
    return rig_reply(&rig, 0, channel, slot, ticket, NULL);
}

static uint64_t quiet(int channel, int pe, unsigned slot)
{
    return rig_plain(&rig, channel, TERN_ENTRY_quiet, pe, slot);
}

static void fence(int channel)
{
    rig_plain(&rig, channel, TERN_ENTRY_fence, 0, 0);
}

static void finish(void)
{
    rig_drain(&rig, &seed);
    CHECK(!rig_aborts, "%s", rig_abort_text);
    rig_close(&rig);
}

/* ---- fences --------------------------------------------------------------------------------------------------------
 */

static void check_fence_unordered(void)
{
    begin(&rig_unordered);
    rig_word(&rig, 1, 0, 8, 1); /* of another ring, taken before the fence: counts */
    rig_settle(&rig);
    rig_word(&rig, 0, 0, 16, 2);
    rig_word(&rig, 0, 1, 16, 2);
    fence(0);
    rig_word(&rig, 0, 0, 24, 3); /* behind the fence */
    rig_word(&rig, 0, 2, 24, 3); /* nothing to that PE is before it */
    rig_settle(&rig);
    rig_word(&rig, 2, 0, 32, 4); /* first in, first out: behind what is held, though its ring has no fence */
    rig_word(&rig, 2, 3, 32, 4);
    rig_settle(&rig);
    CHECK(rig_net.count == 5, "%d posts: two to PE 0, one to each other", rig_net.count);
    CHECK(rig.t->rings[0].fence == 3, "the fence stands for all that was taken before it");
    CHECK(rig_net.flushes[0] == 1 && rig_net.flush_number[0] == 2 && !rig_net.flushes[1],
          "what the fence waits for is flushed: %d times up to %llu", rig_net.flushes[0],
          (unsigned long long)rig_net.flush_number[0]);
    int second = -1, first = -1;
    for (int i = 0; i < rig_net.count; i++) {
        if (rig_net.posts[i].pe == 0)
            *(rig_net.posts[i].copy.remote == 8 ? &first : &second) = i;
    }
    rig_done(&rig, second, TERN_OK);
    rig_settle(&rig);
    CHECK(rig_net.count == 5, "all before the fence, not only its own ring's");
    rig_done(&rig, first, TERN_OK);
    rig_settle(&rig);
    CHECK(rig_net.count == 7 && rig_net.posts[5].copy.remote == 24 && rig_net.posts[6].copy.remote == 32,
          "then what was held, in order");
    finish();

    begin(&rig_unordered); /* what is before the fence is younger than the ring's own operations */
    rig_word(&rig, 0, 0, 8, 1);
    rig_settle(&rig);
    rig_word(&rig, 1, 0, 16, 2);
    rig_settle(&rig);
    fence(0);
    rig_word(&rig, 0, 0, 24, 3);
    rig_settle(&rig);
    rig_done(&rig, 0, TERN_OK);
    rig_settle(&rig);
    CHECK(rig_net.count == 2, "another ring's operation counts");
    finish();
}

static void check_fence_ordered(void)
{
    begin(&rig_ordered);
    rig_word(&rig, 0, 0, 8, 1);
    fence(0);
    rig_word(&rig, 0, 0, 16, 2);
    rig_settle(&rig);
    rig_word(&rig, 1, 0, 24, 3);
    rig_settle(&rig);
    CHECK(rig_net.count == 3 && !rig_net.flushes[0], "%d posts at once, no flush", rig_net.count);
    CHECK(rig_net.posts[0].copy.after == 0 && rig_net.posts[1].copy.after == 1 && rig_net.posts[2].copy.after == 0,
          "the transport is told which operations to follow");
    finish();
}

/* ---- quiets --------------------------------------------------------------------------------------------------------
 */

static void check_quiets(void)
{
    begin(&rig_unordered);
    uint64_t empty = quiet(0, (int)TERN_PE_ALL, 7), empty2 = quiet(0, 2, 8);
    rig_settle(&rig);
    CHECK(reply(0, 7, empty) == TERN_OK && reply(0, 8, empty2) == TERN_OK, "nothing is under way");
    for (int pe = 0; pe < 3; pe++)
        rig_word(&rig, pe, pe, 8, 1); /* posts 0, 1, 2 */
    rig_settle(&rig);
    uint64_t all = quiet(3, (int)TERN_PE_ALL, 1), one = quiet(3, 1, 2);
    rig_settle(&rig);
    rig_word(&rig, 1, 1, 16, 1); /* after both */
    rig_settle(&rig);
    int post[4];
    for (int i = 0; i < 4; i++)
        post[rig_net.posts[i].copy.remote == 16 ? 3 : rig_net.posts[i].pe] = i;
    CHECK(rig_net.flushes[0] == 1 && rig_net.flushes[1] == 1 && rig_net.flushes[2] == 1 && !rig_net.flushes[3],
          "those with something under way are flushed once");
    rig_done(&rig, post[3], TERN_OK); /* one complete where one was counted, but another one */
    CHECK(reply(3, 2, one) < 0, "quiet_pe waits for numbers, not for counts");
    rig_done(&rig, post[2], TERN_OK);
    rig_done(&rig, post[1], TERN_OK);
    CHECK(reply(3, 2, one) == TERN_OK, "quiet_pe: PE 1's are complete");
    CHECK(reply(3, 1, all) < 0, "PE 0's is not");
    rig_word(&rig, 0, 0, 24, 1);
    rig_settle(&rig);
    rig_done(&rig, post[0], TERN_OK);
    CHECK(reply(3, 1, all) == TERN_OK, "all that were before it are complete");
    finish();
}

/* A flush covers what has been posted; the rest of what is wanted is flushed when it has been. */
static void check_flush_again(void)
{
    begin(&rig_unordered);
    rig_net.credits[1] = 1;
    for (int i = 0; i < 3; i++)
        rig_word(&rig, 0, 1, 8, 1);
    uint64_t one = quiet(0, 1, 2);
    rig_settle(&rig);
    for (int i = 0; i < 3; i++) {
        CHECK(rig_net.count == i + 1 && rig_net.flushes[1] == i + 1 && rig_net.flush_number[1] == (uint64_t)i + 1,
              "%d posts, %d flushes", rig_net.count, rig_net.flushes[1]);
        CHECK(reply(0, 2, one) < 0, "not before the last one");
        rig_done(&rig, i, TERN_OK);
        rig_settle(&rig);
    }
    CHECK(reply(0, 2, one) == TERN_OK, "answered");
    finish();
}

/* ---- replies -------------------------------------------------------------------------------------------------------
 */

static uint64_t push_replied(int channel, unsigned op, int pe, unsigned slot)
{
    tern_unit_t u[3];
    unsigned units = 1;
    if (op == TERN_ENTRY_put_s_sig)
        u[units++] = tern_entry_signal(64, 5, slot & 1); /* odd slots: ADD */
    u[0] = tern_entry_short(op, units, (unsigned)pe, 32, 64, 16);
    u[units++] = tern_entry_plain(TERN_ENTRY_reply, (unsigned)pe, slot);
    return rig_push(&rig, 0, channel, u, units) + units - 1;
}

static void check_replies(void)
{
    begin(&rig_unordered);
    /* the operation is incomplete when its REPLY is taken */
    uint64_t put = push_replied(0, TERN_ENTRY_put_s, 0, 2), get = push_replied(1, TERN_ENTRY_get_s, 1, 3),
             set = push_replied(2, TERN_ENTRY_put_s_sig, 2, 4), add = push_replied(3, TERN_ENTRY_put_s_sig, 3, 5);
    rig_settle(&rig);
    CHECK(reply(0, 2, put) < 0 && reply(1, 3, get) < 0 && reply(2, 4, set) < 0 && reply(3, 5, add) < 0, "none yet");
    for (int i = 0; i < 4; i++) {
        if (rig_net.posts[i].pe != 1)
            rig_sent(&rig, i);
    }
    CHECK(reply(0, 2, put) == TERN_OK && reply(2, 4, set) == TERN_OK, "the source is reusable");
    CHECK(reply(3, 5, add) == TERN_OK, "so it is with an ADD, which has yet to go");
    rig_drain(&rig, &seed);
    CHECK(reply(1, 3, get) == TERN_OK, "the data is there");
    /* it is complete, or its source reusable, by then */
    int count = rig_net.count;
    tern_unit_t u = tern_entry_short(TERN_ENTRY_put_s, 1, 0, 32, 64, 16), r = tern_entry_plain(TERN_ENTRY_reply, 0, 9);
    for (int how = 0; how < 3; how++) {
        uint64_t ticket = rig_draw(&rig, 0, 0, 2);
        rig_store(&rig, 0, 0, ticket, u);
        rig_settle(&rig);
        if (how == 1)
            rig_sent(&rig, count);
        else
            rig_done(&rig, count, TERN_OK);
        if (how == 2) { /* the operation's memory is another one's */
            rig_word(&rig, 1, 3, 8, 1);
            rig_settle(&rig);
            count++;
        }
        rig_store(&rig, 0, 0, ticket + 1, r);
        rig_settle(&rig);
        CHECK(reply(0, 9, ticket + 1) == TERN_OK, "case %d", how);
        count++;
    }
    finish();
}

/* ---- atomics by RPC ------------------------------------------------------------------------------------------------
 */

static void check_rpc(void)
{
    uint64_t value = 0;

    begin(&rig_unordered);
    rig_word(&rig, 0, 2, 8, 1);
    rig_amo(&rig, 0, 2, 8, TERN_AMO_add, 5, 0, 0);
    uint64_t old = rig_amo(&rig, 0, 2, 8, TERN_AMO_swap, 9, 1, 11);
    rig_word(&rig, 0, 2, 16, 3);
    rig_word(&rig, 0, 3, 16, 3);
    rig_settle(&rig);
    CHECK(rig_net.count == 2 && rig_net.flushes[2] == 1, "behind what is before it; other PEs go on");
    CHECK(rig_net.loads[1] == 0, "not executed");
    rig_done(&rig, 0 + (rig_net.posts[0].pe != 2), TERN_OK);
    rig_settle(&rig);
    CHECK(rig_net.loads[1] == 9 && rig_reply(&rig, 0, 0, 11, old, &value) == TERN_OK && value == 5,
          "both executed in order: %llu, was %llu", (unsigned long long)rig_net.loads[1], (unsigned long long)value);
    CHECK(rig_net.count == 3 && rig_net.posts[2].copy.remote == 16, "then what was held");
    finish();
}

/* put_signal: SET is one operation of the transport's, ADD is a put and an atomic behind it. */
static void check_put_signal(void)
{
    tern_unit_t u[2] = {tern_entry_short(TERN_ENTRY_put_s_sig, 2, 1, 32, 64, 16), tern_entry_signal(8, 5, 0)};

    begin(&rig_unordered);
    rig_push(&rig, 0, 0, u, 2);
    u[1] = tern_entry_signal(16, 7, 1);
    rig_push(&rig, 0, 0, u, 2);
    rig_settle(&rig);
    CHECK(rig_net.count == 2 && rig_net.posts[0].copy.kind == TERN_OP_PUT_SIGNAL && rig_net.posts[0].copy.signal == 8 &&
              rig_net.posts[0].copy.value == 5 && rig_net.posts[1].copy.kind == TERN_OP_PUT,
          "two puts, one with its signal");
    CHECK(rig_net.flushes[1] && rig_net.loads[2] == 0, "the ADD waits for its data");
    rig_done(&rig, 1, TERN_OK);
    rig_settle(&rig);
    CHECK(rig_net.loads[2] == 0, "and for what is before it");
    rig_done(&rig, 0, TERN_OK);
    rig_settle(&rig);
    CHECK(rig_net.loads[2] == 7, "added");
    finish();

    begin(&rig_amo_ordered);
    rig_push(&rig, 0, 0, u, 2);
    rig_settle(&rig);
    CHECK(rig_net.count == 2 && rig_net.posts[1].copy.kind == TERN_OP_AMO && rig_net.posts[1].copy.remote == 16,
          "a transport with atomics gets both at once, in order");
    finish();

    begin(&rig_unordered);
    rig.px->caps = TERN_NET_AMO;
    rig_push(&rig, 0, 0, u, 2);
    rig_settle(&rig);
    CHECK(rig_net.count == 1, "without order the ADD follows its data");
    rig_done(&rig, 0, TERN_OK);
    rig_settle(&rig);
    CHECK(rig_net.count == 2, "it comes");
    rig.px->caps = TERN_NET_ORDERED | TERN_NET_AMO64;
    rig_amo(&rig, 0, 1, 8, TERN_AMO_add, 5, 0, 0);
    rig_amo(&rig, 0, 1, 8, TERN_AMO_or, 64, 0, 0);
    rig_settle(&rig);
    CHECK(rig_net.count == 3 && rig_net.loads[1] == 0, "an or is not native there");
    rig_drain(&rig, &seed);
    CHECK(rig_net.loads[1] == 64, "but an RPC");
    finish();
}

/* ---- random programs -------------------------------------------------------------------------------------------- */

#define CHANNELS 4
#define ENTRIES 4000

struct pushed {
    uint64_t ticket, upto[CHANNELS]; /* quiet: tickets of each ring that had been taken when it was pushed */
    int pe, slot;
    bool answered;
};
static struct pushed waits[CHANNELS * TERN_RING_REPLIES];
static int wait_count;

/* Everything to `pe` (or all) that was pushed on a channel below a ticket has ended. */
static bool all_ended(int pe, int channel, uint64_t below)
{
    for (const struct tern_op *op = rig.t->all_first; op; op = op->all_next) {
        if (op->ring == channel && op->ticket < below && (pe == (int)TERN_PE_ALL || op->dest->pe == pe))
            return false;
    }
    return true;
}

static void waits_look(void)
{
    for (int i = 0; i < wait_count;) {
        struct pushed *w = &waits[i];
        int status = reply(w->slot / 64, (unsigned)w->slot % 64, w->ticket);
        if (status < 0) {
            i++;
            continue;
        }
        CHECK(status == TERN_OK, "status %d", status);
        for (int c = 0; c < CHANNELS; c++)
            CHECK(all_ended(w->pe, c, w->upto[c]), "a quiet of PE %d was answered before operations of ring %d", w->pe,
                  c);
        *w = waits[--wait_count];
    }
}

static bool slot_busy(int channel, int slot)
{
    for (int i = 0; i < wait_count; i++) {
        if (waits[i].slot == channel * 64 + slot)
            return true;
    }
    return false;
}

static void random_push(void)
{
    int channel = (int)(test_random(&seed) % CHANNELS), pe = (int)(test_random(&seed) % 4),
        slot = (int)(test_random(&seed) % 64);
    unsigned what = (unsigned)(test_random(&seed) % 16);

    if (rig_space(&rig, 0, channel) < 8)
        return;
    if (what < 6) {
        rig_put(&rig, channel, pe, 16 * (test_random(&seed) % 64), 16);
    } else if (what < 10) {
        rig_word(&rig, channel, pe, 8, 1);
    } else if (what == 10) {
        rig_amo(&rig, channel, pe, 8, TERN_AMO_add, 1, 0, 0);
    } else if (what < 13) {
        fence(channel);
    } else if (!slot_busy(channel, slot)) {
        struct pushed *w = &waits[wait_count++];
        w->pe = what == 13 ? pe : (int)TERN_PE_ALL;
        w->slot = channel * 64 + slot;
        for (int c = 0; c < CHANNELS; c++)
            w->upto[c] = rig.t->rings[c].next;
        w->ticket = quiet(channel, w->pe, (unsigned)slot);
        w->upto[channel] = w->ticket;
    }
}

/* No open post of the same PE is one that the newest posts had to follow. */
static void posts_look(int from, bool ordered)
{
    for (int i = from; i < rig_net.count; i++) {
        const struct rig_post *post = &rig_net.posts[i];
        for (int k = 0; k < i; k++) {
            const struct rig_post *before = &rig_net.posts[k];
            if (before->pe != post->pe)
                continue;
            CHECK(before->copy.number < post->copy.number, "PE %d: in the order of their numbers", post->pe);
            CHECK(ordered || !before->op || before->copy.number > post->copy.after,
                  "PE %d: %llu was posted beside %llu, which is behind a fence", post->pe,
                  (unsigned long long)post->copy.number, (unsigned long long)before->copy.number);
        }
    }
}

static void check_random(const struct tern_transport *transport)
{
    begin(transport);
    wait_count = 0;
    for (int pe = 0; pe < 4; pe++)
        rig_net.credits[pe] = pe == 3 ? -1 : 1 + (int)(test_random(&seed) % 5);
    for (int i = 0; i < ENTRIES && !test_failures; i++) {
        random_push();
        if (test_random(&seed) % 3)
            continue;
        int from = rig_net.count;
        tern_engine_turn(rig.t);
        posts_look(from, transport->caps & TERN_NET_ORDERED);
        for (int n = (int)(test_random(&seed) % 4); n && rig_net.open; n--) {
            int k = (int)(test_random(&seed) % (uint64_t)rig_net.count);
            while (!rig_net.posts[k].op)
                k = (k + 1) % rig_net.count;
            if (test_random(&seed) % 4 == 0 && rig_net.posts[k].op->state == TERN_OP_POSTED)
                rig_sent(&rig, k);
            else
                rig_done(&rig, k, TERN_OK);
            waits_look();
        }
        waits_look();
    }
    rig_drain(&rig, &seed);
    waits_look();
    CHECK(wait_count == 0, "%d quiets were never answered", wait_count);
    finish();
}

int main(void)
{
    seed = test_seed();
    check_fence_unordered();
    check_fence_ordered();
    check_quiets();
    check_flush_again();
    check_replies();
    check_rpc();
    check_put_signal();
    check_random(&rig_unordered);
    check_random(&rig_ordered);
    check_random(&rig_amo_ordered);
    return test_end("engine_order");
}
