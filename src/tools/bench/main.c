/*
 * main.c - tern-bench: memory and peers, samples of test and floor in turn, statistics, checks. All PEs walk through the
 * same samples and meet before each; those that take no part in a test wait there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define CHECK_ROUNDS 20u

struct bench {
    struct bench_options o;
    tern_info_t info;
    tern_ctx_t ctx;
    struct bench_place place;
    struct bench_args args;
    uint64_t base, floor_base;  /* rounds so far: of Tern's kernels, of the raw ones */
    bool takes_part, is_target; /* launches kernels; has the memory that the other side reads or writes */
    bool direct;                /* floors are possible: every PE is reached by load/store */
    uint64_t *wrong;            /* [PE] on the heap */
    struct bench_out *outs;     /* host copy */
    struct bench_result *results;
    int result_count, result_room;
    double *us[1 + BENCH_FLOOR_COUNT]; /* [samples] of the test and of each floor */
    bool floor_works[BENCH_FLOOR_COUNT];
};

static bool fail(const char *what)
{
    const char *reason = tern_abort_reason();

    if (!*reason)
        reason = tern_last_error();
    fprintf(stderr, "tern-bench: PE %d: %s%s%s\n", tern_my_pe(), what, *reason ? ": " : "", reason);
    if (tern_initialized() && tern_status() == TERN_OK)
        tern_abort(what);
    return false;
}

/* ---- memory and peers -------------------------------------------------------------------------------------------------------- */

static int thread_count(const struct bench *b)
{
    return b->o.blocks * b->o.threads;
}

static bool open_memory(struct bench *b)
{
    uint64_t max = (b->o.max + 15) & ~(uint64_t)15, count = (uint64_t)thread_count(b), pes = (uint64_t)b->info.n_pes;
    uint64_t blocks = (uint64_t)b->o.blocks;
    uint64_t elements = (count + 64) * 16;
    uint64_t src = b->o.test == BENCH_PUT_SIGNAL ? blocks * max : max;
    uint64_t dst = b->o.test == BENCH_BARRIER ? pes * max : src;
    uint64_t lines = (blocks > pes ? blocks : pes) * BENCH_LINE * sizeof(uint64_t);
    uint64_t words = lines > elements ? lines : elements;

    b->args.src = tern_calloc(1, src > elements ? src : elements);
    b->args.dst = tern_calloc(1, dst > elements ? dst : elements);
    b->args.words = tern_calloc(1, words);
    b->args.floor_words = tern_calloc(1, words);
    b->wrong = tern_calloc(pes, sizeof *b->wrong);
    if (!b->args.src || !b->args.dst || !b->args.words || !b->args.floor_words || !b->wrong)
        return fail("no symmetric memory");
    b->args.out = bench_alloc(blocks * sizeof *b->args.out);
    b->outs = malloc(blocks * sizeof *b->outs);
    for (int i = 0; i < 1 + BENCH_FLOOR_COUNT; i++) {
        b->us[i] = malloc((size_t)b->o.samples * sizeof(double));
        if (!b->us[i])
            return fail("no memory");
    }
    return (b->args.out && b->outs) || fail("no memory");
}

/* Addresses of all PEs' memory for the raw loops; without one of them there are no floors. */
static bool open_peers(struct bench *b)
{
    struct bench_args *a = &b->args;
    size_t pes = (size_t)a->n_pes;
    uint64_t **words = calloc(pes, sizeof *words);
    char **dst = calloc(pes, sizeof *dst);
    bool done = words && dst;

    b->direct = done;
    for (size_t pe = 0; done && pe < pes; pe++) {
        words[pe] = tern_ptr(a->floor_words, (int)pe);
        dst[pe] = tern_ptr(a->dst, (int)pe);
        b->direct = b->direct && words[pe];
    }
    if (done) {
        a->peer_src = tern_ptr(a->src, a->peer);
        a->peer_dst = dst[a->peer];
        a->peer_words = words[a->peer];
        void *all_words = bench_alloc(pes * sizeof *words), *all_dst = bench_alloc(pes * sizeof *dst);
        a->all_words = all_words;
        a->all_dst = all_dst;
        done = all_words && all_dst && bench_upload(all_words, words, pes * sizeof *words) &&
               bench_upload(all_dst, dst, pes * sizeof *dst);
    }
    free(words);
    free(dst);
    return done || fail("no memory");
}

static void close_memory(struct bench *b)
{
    void *symmetric[] = {b->wrong, b->args.floor_words, b->args.words, b->args.dst, b->args.src};

    if (tern_status() == TERN_OK) { /* else tern_finalize takes it all */
        for (size_t i = 0; i < sizeof symmetric / sizeof symmetric[0]; i++)
            tern_free(symmetric[i]);
    }
    bench_proxy_close();
    bench_free(b->args.out);
    bench_free((void *)b->args.all_words);
    bench_free((void *)b->args.all_dst);
    free(b->outs);
    free(b->results);
    for (int i = 0; i < 1 + BENCH_FLOOR_COUNT; i++)
        free(b->us[i]);
}

static const char *path_name(const struct bench *b)
{
    if (b->info.n_pes == 1)
        return "own memory";
    if (!tern_ptr(b->args.words, 1))
        return "proxy";
    if (strcmp(tern_device_name(), "cpu") == 0)
        return "load/store, memory of one node";
    return b->info.sharers > 1 ? "load/store, same GPU" : "load/store";
}

static enum bench_who who_runs(int test)
{
#define BENCH_WHO(id, name, who, min, max, text) who,
    static const enum bench_who who[] = {BENCH_TESTS(BENCH_WHO)};
#undef BENCH_WHO
    return who[test];
}

static bool set_up(struct bench *b)
{
    struct bench_args *a = &b->args;
    enum bench_who who = who_runs(b->o.test);

    b->info.size = sizeof b->info;
    if (tern_get_info(&b->info) != TERN_OK || tern_ctx(&b->ctx) != TERN_OK)
        return fail("no context");
    int resident = b->info.sms / (b->info.sharers > 0 ? b->info.sharers : 1);
    if (who == BENCH_PAIR && b->info.n_pes < 2)
        return fail("this test needs two PEs: start it with a launcher, e.g. mpirun -n 2");
    if (who == BENCH_PAIR && b->o.blocks > (resident > 0 ? resident : 1))
        return fail("--ctas: blocks that wait for another PE must all be resident at once; give at most as many as this PE has "
                    "multiprocessors");
    a->pe = b->info.pe;
    a->n_pes = b->info.n_pes;
    a->peer = a->n_pes == 1 ? 0 : a->pe == 0 ? 1 : 0;
    a->op = b->o.op;
    a->type = b->o.type;
    a->scope = b->o.scope;
    a->quiet = b->o.test == BENCH_PUT_QUIET;
    a->released = b->o.released;
    a->stage = b->o.stage;
    a->timeout_ms = 20000;
    a->never = 0x5555aaaa12345678u;
    b->takes_part = a->pe == 0 || who == BENCH_ALL || (who == BENCH_PAIR && a->pe == 1);
    b->is_target = a->pe == (a->n_pes == 1 ? 0 : 1);
    if (BENCH_PROXIED(b->o.test) && !(b->ctx.flags & TERN_CTX_PROXY))
        return fail("this job needs no proxy: set TERN_DISABLE_P2P=1, TERN_TRANSPORT (null, loopback, ...) and start two PEs");
    if (!open_memory(b) || !open_peers(b))
        return false;
    if (BENCH_PROXIED(b->o.test)) {
        bool few_cores = sysconf(_SC_NPROCESSORS_ONLN) < 4L * a->n_pes;
        if (!bench_proxy_open(b->o.test == BENCH_NOP && a->pe == 0, few_cores))
            return fail("no pinned memory or no thread for the raw loop");
    }
    b->place = (struct bench_place){.pes = a->n_pes, .sharers = b->info.sharers, .path = path_name(b), .machine = b->info.device};
    return true;
}

/* ---- one sample ------------------------------------------------------------------------------------------------------------------ */

enum { SAMPLE_FAILED = -1, SAMPLE_UNSUPPORTED, SAMPLE_DONE };

/* What the kernel's blocks wrote: time of a round in us, words found wrong. */
static int read_outs(struct bench *b, double *us, int64_t *wrong)
{
    size_t blocks = (size_t)b->o.blocks;
    uint64_t begin = UINT64_MAX, end = 0;
    char text[128];

    if (!bench_download(b->outs, b->args.out, blocks * sizeof *b->outs))
        return fail("cannot read the device's memory"), SAMPLE_FAILED;
    for (size_t i = 0; i < blocks; i++) {
        const struct bench_out *out = &b->outs[i];
        if (out->status == TERN_ERR_UNSUPPORTED)
            return SAMPLE_UNSUPPORTED;
        if (out->status != TERN_OK) {
            snprintf(text, sizeof text, "%s: %s in block %zu", bench_test_name[b->o.test],
                     tern_status_text((tern_status_t)out->status), i);
            return fail(text), SAMPLE_FAILED;
        }
        begin = out->begin < begin ? out->begin : begin;
        end = out->end > end ? out->end : end;
        *wrong += (int64_t)out->wrong;
    }
    *us = (double)(end - begin) * 1e-3 / (double)b->args.rounds;
    return SAMPLE_DONE;
}

/* Clears what the blocks are going to write; then all PEs meet. */
static bool begin_sample(struct bench *b)
{
    size_t blocks = (size_t)b->o.blocks;

    memset(b->outs, 0, blocks * sizeof *b->outs);
    if (!bench_upload(b->args.out, b->outs, blocks * sizeof *b->outs))
        return fail("cannot write the device's memory");
    return tern_barrier_all() == TERN_OK || fail("the PEs did not meet");
}

static int end_sample(struct bench *b, tern_status_t launched, double *us, int64_t *wrong)
{
    if (launched == TERN_ERR_UNSUPPORTED)
        return SAMPLE_UNSUPPORTED;
    if (launched != TERN_OK)
        return fail("cannot launch a kernel"), SAMPLE_FAILED;
    if (!bench_device_sync())
        return fail("the device failed"), SAMPLE_FAILED;
    return read_outs(b, us, wrong);
}

static int sample_test(struct bench *b, double *us, int64_t *wrong)
{
    int done = SAMPLE_DONE;

    if (!begin_sample(b))
        return SAMPLE_FAILED;
    b->args.base = b->base;
    b->base += b->args.warmup + b->args.rounds;
    if (b->takes_part && BENCH_PROXIED(b->o.test))
        done = end_sample(b, bench_proxy_launch((enum bench_test)b->o.test, &b->ctx, &b->args, b->o.blocks, b->o.threads), us,
                          wrong);
    else if (b->takes_part)
        done = end_sample(b, bench_test_launch((enum bench_test)b->o.test, &b->ctx, &b->args, b->o.blocks, b->o.threads), us,
                          wrong);
    return done;
}

static int sample_floor(struct bench *b, enum bench_floor floor, double *us)
{
    int done = SAMPLE_DONE;
    int64_t wrong = 0;

    if (!begin_sample(b))
        return SAMPLE_FAILED;
    b->args.base = b->floor_base;
    b->floor_base += b->args.warmup + b->args.rounds;
    if (b->takes_part && BENCH_PROXIED(b->o.test))
        done = end_sample(b, bench_proxy_floor_launch((enum bench_test)b->o.test, &b->args, b->o.blocks, b->o.threads), us, &wrong);
    else if (b->takes_part)
        done = end_sample(b, bench_floor_launch((enum bench_test)b->o.test, floor, &b->args, b->o.blocks, b->o.threads), us,
                          &wrong);
    return done;
}

/* ---- checks ------------------------------------------------------------------------------------------------------------------------ */

/* Of a copying test, all threads together. */
static uint64_t verified_bytes(const struct bench *b)
{
    return b->o.test == BENCH_ISSUE ? 16 * (uint64_t)thread_count(b) : b->args.bytes;
}

/* Memory as the test expects it. Words of atomics and elements of g are always set: the tests depend on them. */
static tern_status_t prepare(struct bench *b)
{
    struct bench_args *a = &b->args;
    bool puts = b->o.test == BENCH_PUT || b->o.test == BENCH_PUT_QUIET || b->o.test == BENCH_ISSUE, gets = b->o.test == BENCH_GET;
    uint64_t bytes = verified_bytes(b);
    tern_status_t status = TERN_OK;

    if (b->o.test == BENCH_ATOMIC && b->is_target) {
        b->base = 0;
        return bench_words_launch(a, a->words, thread_count(b));
    }
    if (b->o.test == BENCH_G && b->is_target)
        return bench_elements_launch(a->src, (thread_count(b) + 63) & ~63, a->type);
    if (!b->o.check)
        return TERN_OK;
    if ((puts && a->pe == 0) || (gets && b->is_target))
        status = bench_fill_launch(a->src, bytes, BENCH_PATTERN_DATA);
    if (status == TERN_OK && ((puts && b->is_target) || (gets && a->pe == 0)))
        status = bench_fill_launch(a->dst, bytes, BENCH_PATTERN_CLEAR);
    if (status == TERN_OK && b->o.test == BENCH_P && b->is_target)
        status = bench_fill_launch(a->dst, (uint64_t)thread_count(b) * 8, BENCH_PATTERN_CLEAR);
    return status;
}

/* After a sample of the test: launches what counts wrong bytes or words into out[0]. */
static tern_status_t verify_launch(struct bench *b)
{
    struct bench_args *a = &b->args;

    switch (b->o.test) {
    case BENCH_PUT:
    case BENCH_PUT_QUIET:
    case BENCH_ISSUE:
        return b->is_target ? bench_verify_launch(a->dst, verified_bytes(b), BENCH_PATTERN_DATA, a->out) : TERN_OK;
    case BENCH_GET:
        return a->pe == 0 ? bench_verify_launch(a->dst, a->bytes, BENCH_PATTERN_DATA, a->out) : TERN_OK;
    case BENCH_P:
        return b->is_target
                   ? bench_p_verify_launch(a, a->dst, thread_count(b), (uint64_t)a->warmup + a->rounds - 1, a->out)
                   : TERN_OK;
    case BENCH_RATE:
        return bench_rate_verify_launch(a, b->o.blocks, b->o.threads, b->base, a->out);
    case BENCH_ATOMIC:
        return b->is_target ? bench_words_verify_launch(a, a->words, thread_count(b), b->base, a->out) : TERN_OK;
    default:
        return TERN_OK;
    }
}

/* Signals: each block's word holds the number of the last round. */
static bool verify_signals(struct bench *b, int64_t *wrong)
{
    for (int block = 0; b->takes_part && block < b->o.blocks; block++) {
        uint64_t word;
        if (!bench_download(&word, b->args.words + (size_t)block * BENCH_LINE, sizeof word))
            return fail("cannot read the device's memory");
        *wrong += word != b->base;
    }
    return true;
}

/* PE 0 learns what all PEs have found. */
static bool sum_wrong(struct bench *b, int64_t own, int64_t *all)
{
    uint64_t word = (uint64_t)own, *words = calloc((size_t)b->args.n_pes, sizeof *words);
    uint64_t *slot = b->wrong + b->args.pe;
    bool done = words && bench_upload(slot, &word, sizeof word);

    if (done && b->args.pe != 0)
        done = tern_put_on_stream(slot, slot, sizeof word, 0, NULL) == TERN_OK;
    done = done && tern_barrier_all_on_stream(NULL) == TERN_OK && bench_device_sync() && tern_status() == TERN_OK;
    done = done && bench_download(words, b->wrong, (size_t)b->args.n_pes * sizeof *words);
    *all = 0;
    for (int pe = 0; done && pe < b->args.n_pes; pe++)
        *all += (int64_t)words[pe];
    free(words);
    return done || fail("cannot gather the counts of wrong words");
}

/* One sample of the test between fill and verification; or of a test that verifies each of its rounds. */
static bool check_size(struct bench *b, int64_t *all)
{
    bool rounds = b->o.test == BENCH_PUT_SIGNAL || b->o.test == BENCH_BARRIER || b->o.test == BENCH_SYNC;
    int64_t wrong = 0;
    double us;

    if (rounds) {
        uint32_t count = b->args.rounds;
        b->args.rounds = CHECK_ROUNDS;
        if (!begin_sample(b))
            return false;
        b->args.base = b->base;
        b->base += CHECK_ROUNDS;
        if (b->takes_part && end_sample(b, bench_rounds_launch((enum bench_test)b->o.test, &b->ctx, &b->args, b->o.blocks,
                                                               b->o.threads), &us, &wrong) != SAMPLE_DONE)
            return false;
        b->args.rounds = count;
    } else {
        if (sample_test(b, &us, &wrong) != SAMPLE_DONE || !begin_sample(b))
            return false;
        if (end_sample(b, verify_launch(b), &us, &wrong) != SAMPLE_DONE)
            return false;
        if (b->o.test == BENCH_SIGNAL && !verify_signals(b, &wrong))
            return false;
    }
    return sum_wrong(b, wrong, all);
}

/* ---- sizes ---------------------------------------------------------------------------------------------------------------------------- */

/* Rounds of a sample: enough to make the clock's step small, not more than a fraction of a second. */
static void choose_rounds(struct bench *b, uint64_t bytes)
{
    bool cpu = strcmp(tern_device_name(), "cpu") == 0;
    uint64_t budget = cpu ? 16u << 20 : 1u << 30, most = cpu ? 200 : 1000, least = cpu ? 2 : 10;
    uint64_t rounds = bytes ? budget / bytes : most;

    rounds = rounds > most ? most : rounds < least ? least : rounds;
    if (b->o.rounds)
        rounds = (uint64_t)b->o.rounds;
    b->args.rounds = (uint32_t)rounds;
    b->args.warmup = b->o.warmup >= 0 ? (uint32_t)b->o.warmup : (uint32_t)(rounds / 10 + 1);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of sorted values, by nearest rank. */
static double percentile(const double *values, long count, double percent)
{
    long rank = (long)(percent / 100 * (double)count + 0.999999);
    return values[rank < 1 ? 0 : rank > count ? count - 1 : rank - 1];
}

static int type_bytes(int type)
{
#define BENCH_BYTES(name, T) (int)sizeof(T),
    static const int bytes[] = {TERN_SCALAR_TYPES(BENCH_BYTES)};
#undef BENCH_BYTES
    return bytes[type];
}

/* Bytes that an operation moves, for GB/s; 0 where that means nothing. */
static double moved_bytes(const struct bench *b)
{
    switch (b->o.test) {
    case BENCH_PUT_SIGNAL:
        return 2.0 * (double)b->args.bytes * b->o.blocks;
    case BENCH_SIGNAL:
    case BENCH_BARRIER:
    case BENCH_SYNC:
    case BENCH_NOP:
        return 0;
    case BENCH_ISSUE:
        return 16.0 * thread_count(b);
    case BENCH_RATE:
        return 8.0 * thread_count(b);
    case BENCH_P:
    case BENCH_G:
    case BENCH_ATOMIC:
        return (double)thread_count(b) * type_bytes(b->o.type);
    default:
        return (double)b->args.bytes;
    }
}

static bool take_samples(struct bench *b)
{
    int64_t wrong = 0;

    for (int f = 0; f < BENCH_FLOOR_COUNT; f++)
        b->floor_works[f] = (b->direct || BENCH_PROXIED(b->o.test)) &&
                            bench_floor_name((enum bench_test)b->o.test, (enum bench_floor)f, &b->args) != NULL;
    for (long i = 0; i < b->o.samples; i++) {
        if (sample_test(b, &b->us[0][i], &wrong) != SAMPLE_DONE)
            return false;
        for (int f = 0; f < BENCH_FLOOR_COUNT; f++) {
            if (!b->floor_works[f])
                continue;
            int done = sample_floor(b, (enum bench_floor)f, &b->us[1 + f][i]);
            if (done == SAMPLE_FAILED)
                return false;
            if (done == SAMPLE_UNSUPPORTED)
                b->us[1 + f][i] = 0; /* left in step with the other PEs */
        }
    }
    return true;
}

/* Statistics on PE 0. The floor is the best of the raw loops that this device has. */
static void sum_up(struct bench *b, struct bench_result *r)
{
    long n = b->o.samples;

    qsort(b->us[0], (size_t)n, sizeof(double), compare_doubles);
    r->us_min = b->us[0][0];
    r->us_median = percentile(b->us[0], n, 50);
    r->us_p99 = percentile(b->us[0], n, 99);
    r->gbps = moved_bytes(b) / r->us_median * 1e-3;
    for (int f = 0; f < BENCH_FLOOR_COUNT; f++) {
        if (!b->floor_works[f])
            continue;
        qsort(b->us[1 + f], (size_t)n, sizeof(double), compare_doubles);
        double us = percentile(b->us[1 + f], n, 50);
        if (us > 0 && (!r->floor || us < r->floor_us)) {
            r->floor_us = us;
            r->floor = bench_floor_name((enum bench_test)b->o.test, (enum bench_floor)f, &b->args);
        }
    }
}

static bool measure_size(struct bench *b, uint64_t bytes)
{
    struct bench_result r = {.bytes = bytes, .wrong = -1};

    b->args.bytes = bytes;
    choose_rounds(b, b->o.test == BENCH_PUT_SIGNAL ? bytes * (uint64_t)b->o.blocks : bytes);
    r.rounds = b->args.rounds;
    if (b->o.test == BENCH_ATOMIC)
        b->base = 0;
    if (prepare(b) != TERN_OK || !bench_device_sync())
        return fail("cannot prepare memory");
    if (tern_barrier_all() != TERN_OK)
        return fail("the PEs did not meet");
    if (b->o.check && !check_size(b, &r.wrong))
        return false;
    if (!take_samples(b))
        return false;
    if (b->o.test == BENCH_P || b->o.test == BENCH_G || b->o.test == BENCH_ATOMIC || BENCH_PROXIED(b->o.test))
        r.bytes = (uint64_t)moved_bytes(b);
    if (b->args.pe == 0) {
        sum_up(b, &r);
        bench_print(&b->o, &b->place, &r);
    }
    if (b->result_count == b->result_room) {
        int room = b->result_room ? 2 * b->result_room : 32;
        struct bench_result *more = realloc(b->results, (size_t)room * sizeof *more);
        if (!more)
            return fail("no memory");
        b->results = more;
        b->result_room = room;
    }
    b->results[b->result_count++] = r;
    return true;
}

static bool measure(struct bench *b)
{
    bool right = true;

    if (b->args.pe == 0)
        bench_print_head(&b->o, &b->place);
    for (uint64_t bytes = b->o.min;;) {
        if (!measure_size(b, bytes))
            return false;
        uint64_t next = (uint64_t)((double)bytes * b->o.factor) & (b->o.test == BENCH_BARRIER ? ~(uint64_t)7 : ~(uint64_t)0);
        if (bytes == b->o.max)
            break;
        bytes = bytes == 0 ? 8 : next > bytes ? next : bytes + (b->o.test == BENCH_BARRIER ? 8 : 1);
        if (bytes > b->o.max)
            bytes = b->o.max;
    }
    if (b->args.pe != 0)
        return true;
    for (int i = 0; i < b->result_count; i++)
        right = right && b->results[i].wrong <= 0;
    if (!right)
        fputs("tern-bench: data was wrong\n", stderr);
    if (b->o.plot && !bench_plot(&b->o, &b->place, b->results, b->result_count))
        return false;
    return right;
}

/* ---- main ---------------------------------------------------------------------------------------------------------------------------------- */

/* The command line as text: bench_options.command. */
static char *join(int argc, char **argv)
{
    size_t bytes = 1;
    char *text, *at;

    for (int i = 0; i < argc; i++)
        bytes += strlen(argv[i]) + 1;
    text = at = malloc(bytes);
    for (int i = 0; text && i < argc; i++) {
        const char *word = i == 0 ? "tern-bench" : argv[i];
        at += sprintf(at, "%s%s", i ? " " : "", word);
    }
    return text;
}

int main(int argc, char **argv)
{
    static struct bench b;
    char *command = join(argc, argv);
    int status = bench_options_parse(&b.o, argc, argv);

    if (status >= 0 || !command) {
        free(command);
        return status >= 0 ? status : 1;
    }
    b.o.command = command;
    if (b.o.plot && !bench_plot_possible(&b.o)) {
        free(command);
        return 2;
    }
    if (tern_init() != TERN_OK) {
        fail("cannot start");
        free(command);
        return 1;
    }
    status = set_up(&b) && measure(&b) ? 0 : 1;
    close_memory(&b);
    if (tern_finalize() != TERN_OK)
        status = 1;
    free(command);
    return status;
}
