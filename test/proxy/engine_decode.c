/*
 * engine_decode.c - from ring to operation: every entry type with random fields comes out as it was encoded, whatever
 * the order in which its words arrive and wherever it wraps; what is wrong is refused with a reason; the null transport
 * folds all of it.
 */
#include "proxy/engine_rig.h"

#define PES 65535
#define CHANNELS 4
#define WANTED 4096 /* tickets */

static uint64_t seed;

static uint64_t bits(int n)
{
    return n == 64 ? test_random(&seed) : test_random(&seed) & ((1ull << n) - 1);
}

/* ---- every entry against what it means -----------------------------------------------------------------------------
 */

/* By ticket, for only the order of one destination's operations is the ring's; [1]: the ADD of a put. */
static struct tern_op wanted[CHANNELS][WANTED][2];
static uint64_t wanted_count, posted_count;

static enum tern_post decode_post(struct tern_proxy_thread *t, struct tern_op *op)
{
    struct tern_op *w = wanted[op->ring][op->ticket % WANTED];

    w += w[0].number == 0; /* has been posted */
    REQUIRE(w->number && w->ticket == op->ticket, "ring %u: an operation that nobody pushed", op->ring);
    REQUIRE(op->kind == w->kind && op->dest->pe == (int)w->number - 1 && op->remote == w->remote &&
                op->local == w->local && op->segment == w->segment && op->bytes == w->bytes && op->value == w->value &&
                op->compare == w->compare && op->signal == w->signal && op->amo == w->amo && op->fetch == w->fetch &&
                op->answer == w->answer && (!w->answer || op->slot == w->slot) && !op->rpc,
            "ring %u, ticket %llu: kind %d PE %d remote %#llx local %#llx segment %d bytes %#llx value %#llx", op->ring,
            (unsigned long long)op->ticket, op->kind, op->dest->pe, (unsigned long long)op->remote,
            (unsigned long long)op->local, op->segment, (unsigned long long)op->bytes, (unsigned long long)op->value);
    w->number = 0;
    posted_count++;
    if (op->answer)
        op->value = op->remote * 3 + 1;
    tern_op_done(t, op, TERN_OK);
    return TERN_POSTED;
}

static const struct tern_transport decoder = {
    .name = "decoder", .caps = TERN_NET_ORDERED | TERN_NET_AMO, .post = decode_post};

/* Put or get; its units, and what it is. */
static unsigned make_copy(unsigned op, unsigned pe, tern_unit_t *u, struct tern_op *w)
{
    bool small = op == TERN_ENTRY_put_s || op == TERN_ENTRY_get_s || op == TERN_ENTRY_put_s_sig;
    bool signal = op == TERN_ENTRY_put_s_sig || op == TERN_ENTRY_put_l_sig;
    unsigned body = small ? 1 : 2, units = body + signal;

    w->kind = op == TERN_ENTRY_get_s || op == TERN_ENTRY_get_l ? TERN_OP_GET : TERN_OP_PUT;
    if (small) {
        w->remote = bits(36) << 4;
        w->local = bits(36) << 4;
        w->bytes = bits(27);
        u[0] = tern_entry_short(op, units, pe, w->remote, w->local, w->bytes);
    } else {
        w->remote = bits(47);
        w->local = bits(47);
        w->segment = (uint16_t)(bits(1) ? 0 : 1 + bits(8));
        w->bytes = bits(36);
        u[0] = tern_entry_long(op, units, pe, w->remote, w->bytes);
        u[1] = tern_entry_local(w->segment, w->local);
    }
    return units;
}

/* A random entry, and the one or two operations that are to come of it: `number` is the PE + 1. */
static unsigned make_entry(tern_unit_t *u, struct tern_op *to)
{
    static const unsigned kinds[] = {TERN_ENTRY_put_s,   TERN_ENTRY_get_s,     TERN_ENTRY_put_l,     TERN_ENTRY_get_l,
                                     TERN_ENTRY_p64,     TERN_ENTRY_put_s_sig, TERN_ENTRY_put_l_sig, TERN_ENTRY_p,
                                     TERN_ENTRY_sig_set, TERN_ENTRY_sig_add,   TERN_ENTRY_amo,       TERN_ENTRY_g};
    unsigned op = kinds[bits(32) % (sizeof kinds / sizeof kinds[0])], pe = (unsigned)(bits(16) % PES), log2;
    struct tern_op w = {0};
    unsigned units = 1;

    to[1].number = 0;
    switch (op) {
    case TERN_ENTRY_p64:
    case TERN_ENTRY_sig_set:
    case TERN_ENTRY_sig_add:
        w.kind = op == TERN_ENTRY_sig_add ? TERN_OP_AMO : TERN_OP_WORD;
        w.amo = op == TERN_ENTRY_sig_add ? TERN_AMO_add : 0;
        w.remote = bits(38) << 3;
        w.bytes = 8;
        w.value = bits(64);
        u[0] = tern_entry_word(op, pe, w.remote, w.value);
        break;
    case TERN_ENTRY_p:
        log2 = (unsigned)bits(32) % 3;
        w.kind = TERN_OP_WORD;
        w.remote = bits(48) % ((1ull << 48) - 8);
        w.bytes = 1u << log2;
        w.value = bits(32);
        u[0] = tern_entry_p(pe, w.remote, (uint32_t)w.value, log2);
        break;
    case TERN_ENTRY_g:
        log2 = (unsigned)bits(2);
        w.kind = TERN_OP_G;
        w.remote = bits(48) % ((1ull << 48) - 8);
        w.bytes = 1u << log2;
        w.slot = (uint8_t)bits(6);
        w.answer = true;
        u[0] = tern_entry_g(pe, w.remote, log2, w.slot);
        break;
    case TERN_ENTRY_amo:
        w.kind = TERN_OP_AMO;
        w.remote = bits(48) % ((1ull << 48) - 8);
        w.bytes = bits(1) ? 8 : 4;
        w.value = bits(64);
        w.compare = bits(64);
        w.amo = (uint8_t)(bits(32) % TERN_AMO_COUNT);
        w.fetch = w.answer = bits(1);
        w.slot = (uint8_t)bits(6);
        u[0] = tern_entry_amo(pe, w.remote, w.value);
        u[1] = tern_entry_amo_more(w.remote, w.amo, w.bytes == 8, w.value, w.compare, w.fetch, w.slot);
        units = 2;
        break;
    default:
        units = make_copy(op, pe, u, &w);
        if (op == TERN_ENTRY_put_s_sig || op == TERN_ENTRY_put_l_sig) {
            uint64_t offset = bits(45) << 3, value = bits(64);
            bool add = bits(1);
            u[units - 1] = tern_entry_signal(offset, value, add);
            if (add) {
                to[1] = (struct tern_op){.kind = TERN_OP_AMO,
                                         .amo = TERN_AMO_add,
                                         .remote = offset,
                                         .bytes = 8,
                                         .value = value,
                                         .number = pe + 1};
            } else {
                w.kind = TERN_OP_PUT_SIGNAL;
                w.signal = offset;
                w.value = value;
            }
        }
    }
    w.number = pe + 1;
    to[0] = w;
    return units;
}

/* Store the words of an entry in random order; the engine looks in between and must not take it before the last one. */
static void store_torn(struct rig *rig, int channel, uint64_t ticket, const tern_unit_t *u, unsigned units)
{
    unsigned left = units * 2, order[2 * TERN_ENTRY_MOST];
    uint64_t posted = posted_count;

    for (unsigned i = 0; i < left; i++)
        order[i] = i;
    for (; left; left--) {
        unsigned i = (unsigned)(bits(32) % left), word = order[i];
        order[i] = order[left - 1];
        rig_settle(rig);
        CHECK(posted_count == posted, "an entry was taken without its last %u words", left);
        rig_store_word(rig, 0, channel, ticket + word / 2, u[word / 2], (int)(word & 1));
    }
}

static void check_entry(struct rig *rig, bool torn)
{
    int channel = (int)bits(2);
    struct tern_op to[2];
    tern_unit_t u[TERN_ENTRY_MOST];
    unsigned units = make_entry(u, to);
    uint64_t ticket, value = 0;

    while (rig_space(rig, 0, channel) < TERN_ENTRY_MOST)
        tern_engine_turn(rig->t);
    if (torn)
        rig_settle(rig);
    ticket = rig_draw(rig, 0, channel, units);
    to[0].ticket = to[1].ticket = ticket;
    memcpy(wanted[channel][ticket % WANTED], to, sizeof to);
    wanted_count += 1 + (to[1].number != 0);
    if (torn)
        store_torn(rig, channel, ticket, u, units);
    else
        for (unsigned i = 0; i < units; i++)
            rig_store(rig, 0, channel, ticket + i, u[i]);
    if (!to[0].answer)
        return;
    rig_settle(rig);
    CHECK(rig_reply(rig, 0, channel, to[0].slot, ticket, &value) == TERN_OK && value == to[0].remote * 3 + 1,
          "the answer goes to slot %u and ticket %llu", to[0].slot, (unsigned long long)ticket);
}

static void check_entries(void)
{
    struct rig rig;

    rig_open(&rig, &(struct rig_config){.n_pes = PES, .threads = 1, .channels = CHANNELS, .transport = &decoder});
    rig.rt.stride = ~0ull; /* every offset that can be encoded */
    for (unsigned i = 0; i < TERN_MAX_BUFFERS; i++)
        rig.px->buffers[i] = (struct tern_buffer_dev){4096, ~0ull};
    for (int i = 0; i < 60000 && !test_failures; i++)
        check_entry(&rig, i % 4 == 0);
    rig_settle(&rig);
    CHECK(posted_count == wanted_count, "%llu operations of %llu, each once", (unsigned long long)posted_count,
          (unsigned long long)wanted_count);
    for (int c = 0; c < CHANNELS; c++)
        CHECK(rig_space(&rig, 0, c) == rig.px->units && rig.t->rings[c].next > 8 * rig.px->units,
              "ring %d: all of %llu units taken, several laps", c, (unsigned long long)rig.t->rings[c].next);
    CHECK(!rig_aborts, "%s", rig_abort_text);
    rig_close(&rig);
}

/* A hole stops its ring, no other; a full ring is taken as a whole, and its published count says so. */
static void check_holes(void)
{
    struct rig rig;
    rig_open(&rig, &(struct rig_config){.n_pes = 4, .threads = 1, .channels = 2});
    uint64_t hole = rig_draw(&rig, 0, 0, 1);
    for (unsigned i = 1; i < rig.px->units; i++)
        rig_put(&rig, 0, 0, 16, 16);
    rig_put(&rig, 1, 0, 16, 16);
    CHECK(rig_space(&rig, 0, 0) == 0, "full");
    rig_settle(&rig);
    CHECK(rig.t->number == 1 && rig_space(&rig, 0, 0) == 0, "the ring waits for its hole, the other one does not");
    rig_store(&rig, 0, 0, hole, tern_entry_word(TERN_ENTRY_p64, 2, 8, 1));
    rig_settle(&rig);
    CHECK(rig.t->number == rig.px->units + 1 && rig_space(&rig, 0, 0) == rig.px->units, "all taken, and published");
    rig_close(&rig);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refused(const char *what, const char *text, unsigned count, tern_unit_t a, tern_unit_t b)
{
    struct rig rig;
    tern_unit_t u[2] = {a, b};
    rig_open(&rig, &(struct rig_config){.n_pes = 4, .threads = 2, .channels = 1});
    rig.px->buffers[6] = (struct tern_buffer_dev){4096, 1000};
    rig_push(&rig, 0, 0, u, count);
    tern_engine_turn(rig.t);
    CHECK(rig_aborts == 1 && rig_abort_status == TERN_ERR_INVALID && strstr(rig_abort_text, text), "%s: %s", what,
          rig_abort_text);
    CHECK(rig.t->checksum == 0 && !rig_incomplete(&rig), "%s: nothing of it reaches the transport", what);
    rig_close(&rig);
}

static void check_refusals(void)
{
    const tern_unit_t no = {{0, 0}};
    refused("remote end", "beyond", 1, tern_entry_short(TERN_ENTRY_put_s, 1, 2, RIG_SPAN - 16, 0, 17), no);
    refused("local end", "beyond", 1, tern_entry_short(TERN_ENTRY_get_s, 1, 2, 0, RIG_SPAN - 16, 17), no);
    refused("word", "beyond", 1, tern_entry_word(TERN_ENTRY_p64, 2, RIG_SPAN, 1), no);
    refused("p", "beyond", 1, tern_entry_p(2, RIG_SPAN - 3, 1, 2), no);
    refused("g", "beyond", 1, tern_entry_g(2, RIG_SPAN - 7, 3, 5), no);
    refused("atomic", "beyond", 2, tern_entry_amo(2, 1ull << 47, 1),
            tern_entry_amo_more(1ull << 47, TERN_AMO_add, 1, 1, 0, 0, 0));
    refused("signal", "beyond", 2, tern_entry_short(TERN_ENTRY_put_s_sig, 2, 2, 0, 0, 16),
            tern_entry_signal(RIG_SPAN, 1, 0));
    refused("ADD signal", "beyond", 2, tern_entry_short(TERN_ENTRY_put_s_sig, 2, 2, RIG_SPAN, 0, 16),
            tern_entry_signal(8, 1, 1));
    refused("end of a buffer", "buffer", 2, tern_entry_long(TERN_ENTRY_put_l, 2, 2, 0, 1), tern_entry_local(7, 1000));
    refused("no buffer", "buffer", 2, tern_entry_long(TERN_ENTRY_put_l, 2, 2, 0, 1), tern_entry_local(8, 0));
    refused("no segment", "buffer", 2, tern_entry_long(TERN_ENTRY_get_l, 2, 2, 0, 1), tern_entry_local(3000, 0));
    refused("no PE", "names a PE", 1, tern_entry_word(TERN_ENTRY_p64, 4, 0, 1), no);
    refused("a PE of the other thread", "names a PE", 1, tern_entry_word(TERN_ENTRY_p64, 1, 0, 1), no);
    refused("quiet of no PE", "names a PE", 1, tern_entry_plain(TERN_ENTRY_quiet, 5, 1), no);
    refused("none", "no operation", 1, tern_entry_plain(TERN_ENTRY_none, 2, 1), no);
    refused("unknown", "no operation", 1, tern_entry_plain(31, 2, 1), no);
    refused("units", "no operation", 1, tern_entry_long(TERN_ENTRY_put_l, 1, 2, 0, 1), no);
}

/* ---- null ----------------------------------------------------------------------------------------------------------
 */

static uint64_t checksum_of(tern_unit_t a, tern_unit_t b, unsigned count)
{
    struct rig rig;
    tern_unit_t u[2] = {a, b};
    rig_open(&rig, &(struct rig_config){.n_pes = 4, .threads = 1, .channels = 1});
    rig.px->buffers[6] = (struct tern_buffer_dev){4096, 1000};
    rig_push(&rig, 0, 0, u, count);
    rig_settle(&rig);
    CHECK(!rig_aborts && rig.t->number == 1, "%s", rig_abort_text);
    uint64_t sum = rig.t->checksum;
    rig_close(&rig);
    return sum;
}

/* Each field changes the checksum. */
static void check_checksum(void)
{
    const tern_unit_t no = {{0, 0}};
    const uint64_t sums[] = {
        checksum_of(tern_entry_short(TERN_ENTRY_put_s, 1, 2, 32, 64, 16), no, 1),
        checksum_of(tern_entry_short(TERN_ENTRY_put_s, 1, 3, 32, 64, 16), no, 1),
        checksum_of(tern_entry_short(TERN_ENTRY_get_s, 1, 2, 32, 64, 16), no, 1),
        checksum_of(tern_entry_short(TERN_ENTRY_put_s, 1, 2, 48, 64, 16), no, 1),
        checksum_of(tern_entry_short(TERN_ENTRY_put_s, 1, 2, 32, 80, 16), no, 1),
        checksum_of(tern_entry_short(TERN_ENTRY_put_s, 1, 2, 32, 64, 17), no, 1),
        checksum_of(tern_entry_long(TERN_ENTRY_put_l, 2, 2, 32, 16), tern_entry_local(7, 64), 2),
        checksum_of(tern_entry_word(TERN_ENTRY_p64, 2, 32, 64), no, 1),
        checksum_of(tern_entry_word(TERN_ENTRY_p64, 2, 32, 65), no, 1),
        checksum_of(tern_entry_amo(2, 32, 5), tern_entry_amo_more(32, TERN_AMO_cas, 1, 5, 6, 1, 3), 2),
        checksum_of(tern_entry_amo(2, 32, 5), tern_entry_amo_more(32, TERN_AMO_cas, 1, 5, 7, 1, 3), 2),
        checksum_of(tern_entry_amo(2, 32, 5), tern_entry_amo_more(32, TERN_AMO_swap, 1, 5, 6, 1, 3), 2),
        checksum_of(tern_entry_short(TERN_ENTRY_put_s_sig, 2, 2, 32, 64, 16), tern_entry_signal(8, 5, 0), 2),
        checksum_of(tern_entry_short(TERN_ENTRY_put_s_sig, 2, 2, 32, 64, 16), tern_entry_signal(16, 5, 0), 2),
    };
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        for (size_t j = 0; j < i; j++)
            CHECK(sums[i] != sums[j], "%zu and %zu differ in a field", i, j);
    }
}

int main(void)
{
    seed = test_seed();
    check_entries();
    check_holes();
    check_refusals();
    check_checksum();
    return test_end("engine_decode");
}
