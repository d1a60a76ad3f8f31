/*
 * post.c - the verbs transport over the verbs library of fake.c: what it posts, in which doorbells and with which
 * flags, completions that are late or errors, atomics of the NIC and of the owner on one word, registrations that fail.
 * The one PE of the process stands for all others: their heap is its own.
 */
#include <errno.h>
#include <unistd.h>

#include "common/sysfs.h"
#include "proxy/engine_rig.h"
#include "verbs/fake.h"

#define HEAP (64ull << 20)
#define EDGE (24ull << 20) /* where the second chunk begins */
#define FAR 2              /* the PE that is put to */

static char root[256];
static char *heap;

static void open_with(struct rig *rig, bool mask)
{
    const struct rig_config config = {.n_pes = 4, .threads = 1, .channels = 4, .mask = mask, .sysfs = root};
    const struct tern_net_chunk chunks[] = {{0, 0, EDGE, heap}, {1, EDGE, HEAP - EDGE, heap + EDGE}};

    rig_open(rig, &config);
    for (int i = 0; i < 2; i++) {
        struct tern_net_key key;
        REQUIRE(tern_proxy_chunk_add(&rig->rt, &chunks[i], &key) == TERN_OK, "%s", tern_last_error());
        for (int pe = 0; pe < config.n_pes; pe++)
            REQUIRE(tern_proxy_peer_chunk_add(&rig->rt, pe, &chunks[i], &key) == TERN_OK, "%s", tern_last_error());
    }
    for (uint64_t i = 0; i < HEAP / 8; i++)
        ((uint64_t *)heap)[i] = i * 0x9e3779b97f4a7c15ull;
}

static void close_rig(struct rig *rig)
{
    const struct tern_net_chunk chunks[] = {{0, 0, EDGE, heap}, {1, EDGE, HEAP - EDGE, heap + EDGE}};

    tern_proxy_stop(&rig->rt);
    for (int i = 0; i < 2; i++)
        tern_proxy_chunk_drop(&rig->rt, &chunks[i]);
    rig_close(rig);
    CHECK(!fake.qps && !fake.mrs && !fake.cqs && !fake.pds && !fake.contexts,
          "left: %d queue pairs, %d regions, %d queues, %d, %d", fake.qps, fake.mrs, fake.cqs, fake.pds, fake.contexts);
}

/* A quiet, answered. */
static void quiet(struct rig *rig, int channel, tern_status_t want)
{
    uint64_t value, ticket = rig_plain(rig, channel, TERN_ENTRY_quiet, TERN_PE_ALL, 7);
    rig_settle(rig);
    CHECK(rig_reply(rig, 0, channel, 7, ticket, &value) == (int)want, "quiet: %d",
          rig_reply(rig, 0, channel, 7, ticket, &value));
}

static uint64_t put(struct rig *rig, int channel, uint64_t remote, uint64_t local, uint64_t bytes)
{
    const tern_unit_t u[] = {tern_entry_long(TERN_ENTRY_put_l, 2, FAR, remote, bytes), tern_entry_local(0, local)};
    return rig_push(rig, 0, channel, u, 2);
}

static uint64_t put_signal(struct rig *rig, int channel, uint64_t remote, uint64_t local, uint64_t bytes, uint64_t sig,
                           uint64_t value, int add)
{
    const tern_unit_t u[] = {tern_entry_long(TERN_ENTRY_put_l_sig, 3, FAR, remote, bytes), tern_entry_local(0, local),
                             tern_entry_signal(sig, value, add)};
    return rig_push(rig, 0, channel, u, 3);
}

static uint64_t get(struct rig *rig, int channel, uint64_t remote, uint64_t local, uint64_t bytes)
{
    const tern_unit_t u[] = {tern_entry_long(TERN_ENTRY_get_l, 2, FAR, remote, bytes), tern_entry_local(0, local)};
    return rig_push(rig, 0, channel, u, 2);
}

/* ---- what is posted -------------------------------------------------------------------------------------------------
 */

static void test_put_signal(void)
{
    struct rig rig;
    fake_reset();
    open_with(&rig, false);
    put_signal(&rig, 0, 1 << 20, 64, 1000, 8, 77, 0);
    rig_settle(&rig);
    const struct fake_request *log = fake.log;
    CHECK(fake.count == 2 && fake.doorbells == 1, "a put with a signal: %d requests, %d doorbells", fake.count,
          fake.doorbells);
    CHECK(log[0].opcode == IBV_WR_RDMA_WRITE && log[0].bytes == 1000 && log[0].flags == 0, "data: flags %#x",
          log[0].flags);
    CHECK(log[1].opcode == IBV_WR_RDMA_WRITE && log[1].bytes == 8 &&
              log[1].flags == (IBV_SEND_INLINE | IBV_SEND_SIGNALED),
          "signal: flags %#x", log[1].flags);
    CHECK(*(uint64_t *)(heap + 8) == 77 && memcmp(heap + (1 << 20), heap + 64, 1000) == 0, "arrived");
    CHECK(rig_incomplete(&rig) == 1, "not complete before it is asked for");
    quiet(&rig, 0, TERN_OK);
    CHECK(fake.count == 3 && log[2].opcode == IBV_WR_RDMA_READ && log[2].bytes == 1 &&
              log[2].flags == IBV_SEND_SIGNALED,
          "a quiet is a read of one byte: %d requests", fake.count);
    CHECK(rig_incomplete(&rig) == 0, "complete");
    quiet(&rig, 0, TERN_OK);
    CHECK(fake.count == 3, "a quiet behind nothing posts nothing");
    put_signal(&rig, 0, 1 << 20, 64, 16, 8, 5, 1);
    rig_settle(&rig);
    CHECK(fake.count == 5 && log[4].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && *(uint64_t *)(heap + 8) == 82,
          "an ADD signal is the NIC's");
    quiet(&rig, 0, TERN_OK);
    rig_word(&rig, 1, FAR, 256, 1234);
    rig_settle(&rig);
    CHECK(fake.log[fake.count - 1].flags == IBV_SEND_INLINE && *(uint64_t *)(heap + 256) == 1234,
          "a word is inline, and not signaled");
    quiet(&rig, 1, TERN_OK);
    close_rig(&rig);
}

/* Cut at the port's largest message and at the edges of chunks, on both sides; the signal comes last. */
static void test_splits(void)
{
    struct rig rig;
    uint64_t bytes = 20 << 20, sum = 0;
    fake_reset();
    open_with(&rig, false);
    put_signal(&rig, 0, EDGE + 4096, 1 << 20, bytes, 8, 9, 0);
    rig_settle(&rig);
    for (int i = 0; i + 1 < fake.count; i++) {
        CHECK(fake.log[i].bytes <= fake.max_msg, "piece %d has %llu bytes", i, (unsigned long long)fake.log[i].bytes);
        sum += fake.log[i].bytes;
    }
    CHECK(fake.count == 4 && sum == bytes && fake.log[3].bytes == 8, "%d requests, %llu bytes", fake.count,
          (unsigned long long)sum);
    CHECK(memcmp(heap + EDGE + 4096, heap + (1 << 20), bytes) == 0, "arrived");
    quiet(&rig, 0, TERN_OK);
    fake.count = 0;
    put(&rig, 0, EDGE - 1000, 100, 3000); /* remote edge */
    put(&rig, 0, 200, EDGE - 500, 3000);  /* local edge */
    get(&rig, 0, EDGE - 100, 90000, 300);
    quiet(&rig, 0, TERN_OK);
    CHECK(fake.count == 7 && fake.log[0].bytes == 1000 && fake.log[2].bytes == 500 && fake.log[4].bytes == 100,
          "%d requests", fake.count);
    CHECK(memcmp(heap + EDGE - 1000, heap + 100, 50) == 0 && memcmp(heap + 90000, heap + EDGE - 100, 300) == 0,
          "arrived");
    close_rig(&rig);
}

/* No completion is handed out: nothing waits for one. */
static void test_held(void)
{
    struct rig rig;
    const int pairs = 1000;
    fake_reset();
    open_with(&rig, false);
    fake.hold = true;
    for (int i = 0; i < pairs; i++) {
        put_signal(&rig, 0, (1 << 20) + 64 * (uint64_t)i, 0, 64, 8 * (uint64_t)i, 1, 0);
        rig_plain(&rig, 0, TERN_ENTRY_fence, 0, 0);
        if (i % 50 == 0)
            rig_settle(&rig);
    }
    rig_settle(&rig);
    CHECK(fake.count == 2 * pairs, "%d requests of %d pairs are posted while all completions are held back", fake.count,
          pairs);
    put(&rig, 0, 0, 0, 64);
    for (int i = 0; i < 300; i++)
        rig_word(&rig, 1, FAR, 8, (uint64_t)i); /* more than the queue holds: they wait */
    rig_settle(&rig);
    CHECK(rig_incomplete(&rig) == (uint32_t)pairs + 301, "%u incomplete", rig_incomplete(&rig));
    fake.hold = false;
    quiet(&rig, 0, TERN_OK);
    quiet(&rig, 1, TERN_OK);
    CHECK(rig_incomplete(&rig) == 0 && *(uint64_t *)(heap + 8) == 299, "all is complete at last");
    close_rig(&rig);
}

/* A get, a fence, a put into what was read: the fake reads late, unless the put has the fence flag. */
static void test_fence(void)
{
    struct rig rig;
    uint64_t before;
    fake_reset();
    open_with(&rig, false);
    fake.hold = true;
    memcpy(&before, heap + 4096, 8);
    get(&rig, 0, 4096, 64, 8);
    rig_plain(&rig, 0, TERN_ENTRY_fence, 0, 0);
    rig_word(&rig, 0, FAR, 4096, 1);
    rig_word(&rig, 0, FAR, 4104, 2);
    rig_settle(&rig);
    CHECK(fake.count == 3 && (fake.log[1].flags & IBV_SEND_FENCE), "the put behind the fence waits for the read");
    fake.hold = false;
    quiet(&rig, 0, TERN_OK);
    CHECK(*(uint64_t *)(heap + 64) == before && *(uint64_t *)(heap + 4096) == 1,
          "the get brought what was there before");
    fake.count = 0;
    get(&rig, 0, 4096, 64, 8);
    rig_word(&rig, 1, FAR, 4112, 3); /* another channel, no fence */
    rig_settle(&rig);
    CHECK(fake.count == 2 && !(fake.log[1].flags & IBV_SEND_FENCE), "no fence, no flag");
    quiet(&rig, 0, TERN_OK);
    quiet(&rig, 1, TERN_OK);
    close_rig(&rig);
}

/* ---- atomics --------------------------------------------------------------------------------------------------------
 */

/* Of the NIC (add, compare-swap) and of the owner (the others), 4 and 8 bytes, on one word: as one after the other. */
static void test_atomics(void)
{
    struct rig rig;
    uint64_t random = test_seed(), model, value;
    fake_reset();
    open_with(&rig, false);
    memcpy(&model, heap + 512, 8);
    for (int i = 0; i < 500; i++) {
        static const unsigned ops[] = {TERN_AMO_add, TERN_AMO_xor, TERN_AMO_swap,
                                       TERN_AMO_and, TERN_AMO_or,  TERN_AMO_fetch};
        unsigned amo = ops[test_random(&random) % 6], fetch = amo == TERN_AMO_fetch || test_random(&random) % 2;
        uint64_t operand = test_random(&random), old = model;
        uint64_t ticket = rig_amo(&rig, 0, FAR, 512, amo, operand, fetch, 9);
        model = amo == TERN_AMO_add    ? model + operand
                : amo == TERN_AMO_xor  ? model ^ operand
                : amo == TERN_AMO_swap ? operand
                : amo == TERN_AMO_and  ? (model & operand)
                : amo == TERN_AMO_or   ? (model | operand)
                                       : model;
        if (!fetch)
            continue;
        rig_settle(&rig);
        CHECK(rig_reply(&rig, 0, 0, 9, ticket, &value) == TERN_OK && value == old, "operation %d (%u): %llx, not %llx",
              i, amo, (unsigned long long)value, (unsigned long long)old);
    }
    quiet(&rig, 0, TERN_OK);
    CHECK(*(uint64_t *)(heap + 512) == model, "%llx, not %llx", (unsigned long long)*(uint64_t *)(heap + 512),
          (unsigned long long)model);
    int native = 0;
    for (int i = 0; i < fake.count; i++)
        native += fake.log[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    CHECK(native > 30, "%d adds were the NIC's", native);
    /* a flush of another PE is under way: its byte goes elsewhere than what the owner reads */
    const tern_unit_t u[] = {tern_entry_long(TERN_ENTRY_put_l, 2, 3, 8192, 8), tern_entry_local(0, 64)};
    fake.hold = fake.elsewhere = true;
    rig_push(&rig, 0, 1, u, 2);
    rig_plain(&rig, 1, TERN_ENTRY_quiet, TERN_PE_ALL, 10);
    rig_settle(&rig);
    memset(heap, (int)~model & 0xff, 8); /* where flushes read */
    uint64_t ticket = rig_amo(&rig, 0, FAR, 512, TERN_AMO_fetch, 0, 1, 9);
    rig_settle(&rig);
    CHECK(rig_reply(&rig, 0, 0, 9, ticket, &value) == TERN_OK && value == model, "%llx, not %llx",
          (unsigned long long)value, (unsigned long long)model);
    fake.hold = false;
    quiet(&rig, 1, TERN_OK);
    close_rig(&rig);
}

/* ---- failure --------------------------------------------------------------------------------------------------------
 */

/* One of each, with waiters for all that has one. The tickets of those that are answered. */
static int mixed_program(struct rig *rig, uint64_t *tickets)
{
    int n = 0;
    for (int i = 0; i < 4; i++) {
        put(rig, i, 4096, 64, 512);
        rig_word(rig, i, FAR, 8192, 5);
        tern_unit_t g = tern_entry_g(FAR, 16384, 3, (unsigned)n);
        tickets[n++] = rig_push(rig, 0, i, &g, 1);
        put_signal(rig, i, 4096, 64, 100, 8, 3, 0);
        tickets[n] = rig_amo(rig, i, FAR, 512, TERN_AMO_add, 1, 1, (unsigned)n), n++;
        tickets[n] = rig_plain(rig, i, TERN_ENTRY_quiet, TERN_PE_ALL, (unsigned)n), n++;
    }
    return n;
}

/* Requests of the program when none fails. */
static int program_requests(void)
{
    struct rig rig;
    uint64_t tickets[16];
    fake_reset();
    open_with(&rig, true);
    mixed_program(&rig, tickets);
    rig_settle(&rig);
    CHECK(rig_incomplete(&rig) == 0, "%u are incomplete", rig_incomplete(&rig));
    int count = fake.count;
    close_rig(&rig);
    return count;
}

/* Request k fails, then its PE is found dead, or not: every waiter is answered, with the same status from k on. */
static void test_errors(bool dead)
{
    const int last = dead ? program_requests() : 2;
    CHECK(last > 1, "%d requests", last);
    for (int k = 0; k < last; k++) {
        struct rig rig;
        uint64_t tickets[16], value;
        int failed = 0;
        tern_status_t want = dead ? TERN_ERR_PEER_DEAD : TERN_ERR_TRANSPORT;

        fake_reset();
        fake.fail_at = k;
        open_with(&rig, true);
        int n = mixed_program(&rig, tickets);
        rig_settle(&rig);
        if (dead)
            tern_proxy_dead(&rig.rt, FAR);
        for (int i = 0; i < 20000 && rig_incomplete(&rig); i++) {
            rig_settle(&rig);
            usleep(dead ? 0 : 1000);
            rig.t->turns = 0; /* the clock is read */
        }
        CHECK(rig_incomplete(&rig) == 0, "request %d failed: %u are incomplete", k, rig_incomplete(&rig));
        for (int i = 0; i < n; i++) {
            int status = rig_reply(&rig, 0, i / 3, (unsigned)i, tickets[i], &value);
            CHECK(status == TERN_OK || status == (int)want, "request %d failed: waiter %d got %d", k, i, status);
            failed += status == (int)want;
        }
        CHECK(failed > 0, "request %d failed: nobody was told", k);
        CHECK(rig_aborts == 0, "%s", rig_abort_text);
        rig_plain(&rig, 3, TERN_ENTRY_quiet, TERN_PE_ALL, 20); /* tells what other rings lost */
        rig_settle(&rig);
        rig_word(&rig, 3, 3, 32768, 42);
        quiet(&rig, 3, TERN_OK);
        CHECK(*(uint64_t *)(heap + 32768) == 42, "another PE is served");
        close_rig(&rig);
    }
}

static void test_refusals(void)
{
    struct rig rig;
    struct tern_net_key key;
    const struct tern_net_chunk chunk = {5, 0, 4096, heap};
    fake_reset();
    open_with(&rig, true);
    fake.reg_error = ENOMEM;
    CHECK(tern_proxy_chunk_add(&rig.rt, &chunk, &key) == TERN_ERR_TRANSPORT && strstr(tern_last_error(), "ulimit -l"),
          "%s", tern_last_error());
    CHECK(tern_proxy_buffer_add(&rig.rt, heap, 4096) == TERN_ERR_TRANSPORT && strstr(tern_last_error(), "ulimit -l"),
          "%s", tern_last_error());
    fake.reg_error = 0;
    fake.qp_error = ENOMEM;
    rig_word(&rig, 0, FAR, 8, 1);
    rig_settle(&rig);
    quiet(&rig, 0, TERN_ERR_TRANSPORT);
    fake.qp_error = 0;
    close_rig(&rig);
}

/* Memory of a queue pair by the number of PEs: what docs/design.md says. */
static void test_depth(void)
{
    const struct {
        int pes;
        uint32_t depth;
    } rows[] = {{2, 2048}, {8, 2048}, {64, 2048}, {65, 1024}, {512, 256}, {1024, 128}, {100000, 128}};
    CHECK(sizeof(struct verbs_request) == 24, "%zu", sizeof(struct verbs_request));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK(verbs_depth(rows[i].pes) == rows[i].depth, "%d PEs: %u", rows[i].pes, verbs_depth(rows[i].pes));
}

int main(void)
{
    sysfs_unpack("fake", root, sizeof root);
    heap = aligned_alloc(4096, HEAP);
    REQUIRE(heap, "memory");
    test_put_signal();
    test_splits();
    test_held();
    test_fence();
    test_atomics();
    test_errors(true);
    test_errors(false);
    test_refusals();
    test_depth();
    free(heap);
    return test_end("post");
}
