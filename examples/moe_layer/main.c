/*
 * main.c - the forward pass of one Mixture-of-Experts layer with expert parallelism over all PEs, on a text: the life of
 * the run and its table. Start it with a launcher, for example `mpirun -n 4 moe_layer`; alone it is one PE.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe.h"

struct run {
    struct moe_options o;
    struct moe_layer m;
    struct moe_buffers b;
    struct moe_text text;
    uint64_t *words; /* of the layer's tokens */
    tern_ctx_t ctx;
    double *us[MOE_PHASES]; /* [iters] of this PE */
    struct moe_verdict verdict;
    uint64_t *report; /* [PE][report_words] on the heap */
};

/* ---- shape and buffers -------------------------------------------------------------------------------------------------------- */

/* Tells why this PE cannot go on, to all others, too, so that they need not wait for it. */
static bool fail(const char *what)
{
    const char *reason = tern_abort_reason();
    if (!*reason)
        reason = tern_last_error();
    fprintf(stderr, "moe_layer: PE %d: %s%s%s\n", tern_my_pe(), what, *reason ? ": " : "", reason);
    if (tern_initialized() && tern_status() == TERN_OK)
        tern_abort(what);
    return false;
}

/* Blocks that may be resident at once, whoever else uses the device: those that wait must not keep out those that send. */
static int resident_blocks(const tern_info_t *info)
{
    int blocks = info->sms / (info->sharers > 0 ? info->sharers : 1);
    if (strcmp(tern_device_name(), "cpu") == 0)
        blocks = blocks < 4 ? blocks : 4; /* as many threads of the operating system */
    if (blocks > MOE_MAX_BLOCKS)
        blocks = MOE_MAX_BLOCKS;
    return blocks > 0 ? blocks : 1;
}

static void shape_layer(struct moe_layer *m, const struct moe_options *o, const tern_info_t *info)
{
    m->pe = info->pe;
    m->n_pes = info->n_pes;
    m->tokens = (int)o->tokens;
    m->hidden = (int)o->hidden;
    m->width = 2 * m->hidden;
    m->experts = (int)o->experts;
    m->topk = (int)o->topk;
    m->dtype = o->dtype;
    m->fault = o->fault;
    m->seed = o->seed;
    m->timeout_ms = (uint32_t)o->timeout_ms;
    m->blocks = resident_blocks(info);
    m->max_tokens = (m->tokens + m->n_pes - 1) / m->n_pes;
    m->max_experts = (m->experts + m->n_pes - 1) / m->n_pes;
    m->first_token = moe_share_first(m->tokens, m->pe, m->n_pes);
    m->my_tokens = moe_share_first(m->tokens, m->pe + 1, m->n_pes) - m->first_token;
    m->first_expert = moe_share_first(m->experts, m->pe, m->n_pes);
    m->my_experts = moe_share_first(m->experts, m->pe + 1, m->n_pes) - m->first_expert;
    m->value_bytes = (uint32_t)m->hidden * (m->dtype == MOE_BF16 ? 2u : 4u);
    m->row_bytes = (uint32_t)sizeof(struct moe_head) + m->value_bytes;
    m->gate_scale = 4 * sqrtf(3.0f / (float)m->hidden);
    m->in_scale = 2 * sqrtf(3.0f / (float)m->hidden);
    m->out_scale = 2 * sqrtf(3.0f / (float)m->width);
}

/* Words of a PE's report: these, then tokens of each expert, then rows routed and sent to each PE. */
enum { REPORT_WRONG, REPORT_ERROR, REPORT_LARGEST, REPORT_NS, REPORT_FIXED = REPORT_NS + MOE_PHASES };

static size_t report_words(const struct moe_layer *m)
{
    return (size_t)REPORT_FIXED + (size_t)m->experts + 2 * (size_t)m->n_pes;
}

/* Sizes are equal on all PEs, as symmetric memory asks; the order of the calls is, too. */
static bool open_symmetric(struct run *run)
{
    const struct moe_layer *m = &run->m;
    size_t pes = (size_t)m->n_pes, tokens = (size_t)m->max_tokens, topk = (size_t)m->topk;
    struct {
        void **ptr;
        size_t bytes;
    } list[] = {
        {(void **)&run->b.in_rows, pes * tokens * m->row_bytes},
        {(void **)&run->b.in_flags, pes * tokens * sizeof(uint64_t)},
        {(void **)&run->b.in_count, pes * sizeof(uint64_t)},
        {(void **)&run->b.back_rows, tokens * topk * m->value_bytes},
        {(void **)&run->b.back_flags, tokens * topk * sizeof(uint64_t)},
        {(void **)&run->b.out_rows, (tokens + 1) * m->row_bytes},
        {(void **)&run->b.results, pes * tokens * topk * m->value_bytes},
        {(void **)&run->report, pes * report_words(m) * sizeof(uint64_t)},
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        *list[i].ptr = tern_calloc(1, list[i].bytes);
        if (!*list[i].ptr)
            return fail("no symmetric memory");
    }
    return true;
}

static bool open_local(struct run *run)
{
    const struct moe_layer *m = &run->m;
    size_t pes = (size_t)m->n_pes, tokens = (size_t)m->my_tokens, experts = (size_t)m->my_experts;
    struct {
        void **ptr;
        size_t bytes;
    } list[] = {
        {(void **)&run->b.words, tokens * sizeof(uint64_t)},
        {(void **)&run->b.gate, (size_t)m->experts * (size_t)m->hidden * sizeof(float)},
        {(void **)&run->b.gate_weight, tokens * (size_t)m->topk * sizeof(float)},
        {(void **)&run->b.list, pes * (size_t)m->max_tokens * sizeof(int32_t)},
        {(void **)&run->b.list_count, pes * sizeof(int32_t)},
        {(void **)&run->b.pairs, experts * (size_t)m->tokens * sizeof(int32_t)},
        {(void **)&run->b.pair_count, experts * sizeof(int32_t)},
        {(void **)&run->b.weights, experts * 3 * (size_t)m->width * m->value_bytes},
        {(void **)&run->b.output, tokens * m->value_bytes},
        {(void **)&run->b.sent, pes * sizeof(unsigned long long)},
        {(void **)&run->b.clocks, (size_t)MOE_PHASES * MOE_MAX_BLOCKS * 2 * sizeof(uint64_t)},
        {(void **)&run->b.trouble, sizeof(struct moe_trouble)},
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        *list[i].ptr = moe_device_alloc(list[i].bytes);
        if (!*list[i].ptr) {
            char what[192];
            snprintf(what, sizeof what, "no device memory for %zu bytes (%d of %d experts, hidden %d, %d tokens); start more "
                     "PEs, or lower --experts, --hidden or --tokens", list[i].bytes, m->my_experts, m->experts, m->hidden,
                     m->tokens);
            return fail(what);
        }
    }
    return moe_upload(run->b.words, run->words + m->first_token, tokens * sizeof(uint64_t)) || fail("cannot upload the text");
}

static bool open_host(struct run *run)
{
    struct moe_verdict *v = &run->verdict;

    for (int p = 0; p < MOE_PHASES; p++)
        run->us[p] = calloc((size_t)run->o.iters, sizeof(double));
    v->expert_tokens = calloc((size_t)run->m.experts, sizeof(uint64_t));
    v->routed = calloc((size_t)run->m.n_pes, sizeof(uint64_t));
    v->sent = calloc((size_t)run->m.n_pes, sizeof(uint64_t));
    run->words = calloc((size_t)run->m.tokens, sizeof(uint64_t));
    if (!run->us[MOE_DISPATCH] || !run->us[MOE_COMBINE] || !v->expert_tokens || !v->routed || !v->sent || !run->words)
        return fail("no memory");
    for (int t = 0; t < run->m.tokens; t++)
        run->words[t] = run->text.words[(size_t)t % run->text.count];
    return true;
}

static void close_run(struct run *run)
{
    struct moe_buffers *b = &run->b;
    void *symmetric[] = {run->report, b->results, b->out_rows, b->back_flags, b->back_rows, b->in_count, b->in_flags, b->in_rows};
    void *local[] = {b->words, b->gate, b->gate_weight, b->list, b->list_count, b->pairs, b->pair_count, b->weights, b->output,
                     b->sent, b->clocks, b->trouble};
    void *host[] = {run->us[MOE_DISPATCH], run->us[MOE_COMBINE], run->verdict.expert_tokens, run->verdict.routed,
                    run->verdict.sent, run->words};

    if (tern_status() == TERN_OK) { /* else tern_finalize takes it all */
        for (size_t i = 0; i < sizeof symmetric / sizeof symmetric[0]; i++)
            tern_free(symmetric[i]);
    }
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        moe_device_free(local[i]);
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
        free(host[i]);
}

/* ---- the forward pass --------------------------------------------------------------------------------------------------------- */

/* Queues one pass. The barrier says that every PE has used what the last pass sent to it, so slots may be written again. */
static tern_status_t queue_pass(const struct run *run, uint64_t epoch)
{
    const struct moe_layer *m = &run->m;
    const struct moe_buffers *b = &run->b;
    tern_status_t status;

    if ((status = moe_launch_gate(m, b)) != TERN_OK || (status = moe_launch_plan(m, b)) != TERN_OK ||
        (status = tern_barrier_all_on_stream(NULL)) != TERN_OK ||
        (status = moe_launch_dispatch(&run->ctx, m, b, epoch)) != TERN_OK ||
        (status = moe_launch_index(m, b)) != TERN_OK || (status = moe_launch_experts(m, b)) != TERN_OK ||
        /* only so that combine's time is not that of the slowest expert: */
        (status = tern_sync_all_on_stream(NULL)) != TERN_OK)
        return status;
    return moe_launch_combine(&run->ctx, m, b, epoch);
}

/* Did a wait of the pass fail? Then all other PEs are told, so that they need not run into their time limits, too. */
static bool check_trouble(struct run *run)
{
    static const char *const phase[] = {"dispatch: row", "combine: result for token"};
    struct moe_trouble trouble;
    char text[160];

    if (!moe_download(&trouble, run->b.trouble, sizeof trouble))
        return fail("cannot read the device's memory");
    if (!trouble.claimed)
        return true;
    if (trouble.row < 0)
        snprintf(text, sizeof text, "moe_layer: PE %d: dispatch: the number of rows from PE %d did not come: %s", run->m.pe,
                 trouble.pe, tern_status_text((tern_status_t)trouble.status));
    else
        snprintf(text, sizeof text, "moe_layer: PE %d: %s %d from PE %d did not come: %s", run->m.pe, phase[trouble.phase],
                 trouble.row, trouble.pe, tern_status_text((tern_status_t)trouble.status));
    fprintf(stderr, "%s\n", text);
    if (trouble.status == TERN_ERR_TIMEOUT)
        tern_abort(text);
    return false;
}

/* From the first block's begin to the last one's end. */
static double phase_us(const struct moe_layer *m, const uint64_t *clocks, int phase)
{
    const uint64_t *c = clocks + (size_t)phase * MOE_MAX_BLOCKS * 2;
    uint64_t begin = c[0], end = c[1];

    for (int block = 1; block < m->blocks; block++) {
        begin = c[2 * block] < begin ? c[2 * block] : begin;
        end = c[2 * block + 1] > end ? c[2 * block + 1] : end;
    }
    return (double)(end - begin) * 1e-3;
}

static bool run_passes(struct run *run)
{
    uint64_t clocks[MOE_PHASES * MOE_MAX_BLOCKS * 2];

    if (moe_launch_weights(&run->m, &run->b) != TERN_OK)
        return fail("cannot launch a kernel");
    for (long i = -1; i < run->o.iters; i++) { /* the first pass is not counted */
        if (queue_pass(run, (uint64_t)(i + 2)) != TERN_OK)
            return fail("cannot queue a forward pass");
        if (!moe_device_sync())
            return fail("the device failed");
        if (!check_trouble(run))
            return false;
        if (tern_status() != TERN_OK)
            return fail("the job was aborted");
        if (!moe_download(clocks, run->b.clocks, sizeof clocks))
            return fail("cannot read the device's memory");
        for (int p = 0; i >= 0 && p < MOE_PHASES; p++)
            run->us[p][i] = phase_us(&run->m, clocks, p);
    }
    return true;
}

/* ---- results -------------------------------------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, long count)
{
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Every PE puts its report into every PE's memory, so that all come to the same verdict. */
static bool exchange_reports(struct run *run, uint64_t *all)
{
    const struct moe_layer *m = &run->m;
    size_t words = report_words(m), own = (size_t)m->pe * words, bytes = words * sizeof(uint64_t);
    uint64_t *mine = all + own;

    mine[REPORT_WRONG] = run->verdict.wrong;
    memcpy(&mine[REPORT_ERROR], &run->verdict.error, sizeof(double));
    memcpy(&mine[REPORT_LARGEST], &run->verdict.largest, sizeof(double));
    for (int p = 0; p < MOE_PHASES; p++)
        mine[REPORT_NS + p] = (uint64_t)(median(run->us[p], run->o.iters) * 1e3);
    memcpy(mine + REPORT_FIXED, run->verdict.expert_tokens, (size_t)m->experts * sizeof(uint64_t));
    memcpy(mine + REPORT_FIXED + m->experts, run->verdict.routed, (size_t)m->n_pes * sizeof(uint64_t));
    memcpy(mine + REPORT_FIXED + m->experts + m->n_pes, run->verdict.sent, (size_t)m->n_pes * sizeof(uint64_t));

    if (!moe_upload(run->report + own, mine, bytes))
        return fail("cannot write the device's memory");
    for (int pe = 0; pe < m->n_pes; pe++) {
        if (pe != m->pe && tern_put_on_stream(run->report + own, run->report + own, bytes, pe, NULL) != TERN_OK)
            return fail("cannot put the report");
    }
    if (tern_barrier_all_on_stream(NULL) != TERN_OK || !moe_device_sync() || tern_status() != TERN_OK)
        return fail("the reports did not come");
    return moe_download(all, run->report, (size_t)m->n_pes * bytes) || fail("cannot read the device's memory");
}

struct result {
    uint64_t wrong, tokens_min, tokens_max;
    double error, largest, tolerance, us[MOE_PHASES];
    bool ok;
};

static uint64_t sum_word(const struct moe_layer *m, const uint64_t *all, size_t word)
{
    uint64_t sum = 0;
    for (int pe = 0; pe < m->n_pes; pe++)
        sum += all[(size_t)pe * report_words(m) + word];
    return sum;
}

static void sum_up(const struct moe_layer *m, const uint64_t *all, struct result *r)
{
    memset(r, 0, sizeof *r);
    r->tokens_min = UINT64_MAX;
    r->wrong = sum_word(m, all, REPORT_WRONG);
    for (int pe = 0; pe < m->n_pes; pe++) {
        const uint64_t *words = all + (size_t)pe * report_words(m);
        double error, largest;
        memcpy(&error, &words[REPORT_ERROR], sizeof error);
        memcpy(&largest, &words[REPORT_LARGEST], sizeof largest);
        r->error = error > r->error ? error : r->error;
        r->largest = largest > r->largest ? largest : r->largest;
        for (int p = 0; p < MOE_PHASES; p++)
            r->us[p] = fmax(r->us[p], (double)words[REPORT_NS + p] * 1e-3);
    }
    for (int e = 0; e < m->experts; e++) {
        uint64_t tokens = sum_word(m, all, (size_t)(REPORT_FIXED + e));
        r->tokens_min = tokens < r->tokens_min ? tokens : r->tokens_min;
        r->tokens_max = tokens > r->tokens_max ? tokens : r->tokens_max;
    }
    r->tolerance = r->largest * (m->dtype == MOE_BF16 ? 1.0 / 128 : 1e-5);
    r->ok = r->wrong == 0 && r->error <= r->tolerance && r->largest > 0;
}

static void print_table(const struct run *run, const uint64_t *all, const struct result *r, const tern_info_t *info)
{
    const struct moe_layer *m = &run->m;

    printf("moe_layer        one Mixture-of-Experts layer over %d PE%s\n", m->n_pes, m->n_pes == 1 ? "" : "s");
    printf("device           %s (%s)\n", tern_device_name(), info->device);
    printf("text             %s: %zu tokens, %d used\n", run->text.name, run->text.count, m->tokens);
    printf("layer            %d experts, top-%d, hidden %d, SwiGLU width %d, %s, seed %llu\n", m->experts, m->topk, m->hidden,
           m->width, m->dtype == MOE_BF16 ? "bf16" : "fp32", (unsigned long long)m->seed);
    printf("tokens/expert    min %llu, mean %.1f, max %llu\n", (unsigned long long)r->tokens_min,
           (double)m->tokens * m->topk / m->experts, (unsigned long long)r->tokens_max);
    printf("\n%6s %9s %9s %12s %14s %18s\n", "PE", "tokens", "experts", "rows sent to", "bytes sent to", "routing: rows");
    for (int pe = 0; pe < m->n_pes; pe++) {
        uint64_t routed = sum_word(m, all, (size_t)(REPORT_FIXED + m->experts + pe));
        uint64_t sent = sum_word(m, all, (size_t)(REPORT_FIXED + m->experts + m->n_pes + pe));
        printf("%6d %9d %9d %12llu %14llu %18llu%s\n", pe,
               moe_share_first(m->tokens, pe + 1, m->n_pes) - moe_share_first(m->tokens, pe, m->n_pes),
               moe_share_first(m->experts, pe + 1, m->n_pes) - moe_share_first(m->experts, pe, m->n_pes),
               (unsigned long long)sent, (unsigned long long)(sent * m->row_bytes), (unsigned long long)routed,
               sent == routed ? "" : "  DIFFERS");
    }
    printf("\ndispatch         %.1f us   combine %.1f us   (median of %ld passes, slowest PE)\n", r->us[MOE_DISPATCH],
           r->us[MOE_COMBINE], run->o.iters);
    printf("largest error    %.3g of %.3g allowed (largest value %.3g)\n", r->error, r->tolerance, r->largest);
    if (r->wrong)
        printf("failed checks    %llu\n", (unsigned long long)r->wrong);
    printf("%s\n", r->ok ? "OK" : "FAILED");
}

static void print_json(const struct run *run, const uint64_t *all, const struct result *r)
{
    const struct moe_layer *m = &run->m;

    printf("{\"test\":\"moe_layer\",\"device\":\"%s\",\"pes\":%d,\"tokens\":%d,\"experts\":%d,\"topk\":%d,\"hidden\":%d,"
           "\"dtype\":\"%s\",\"seed\":%llu,\"iters\":%ld,\"expert_tokens_min\":%llu,\"expert_tokens_max\":%llu,"
           "\"row_bytes\":%u,\"rows_sent\":[",
           tern_device_name(), m->n_pes, m->tokens, m->experts, m->topk, m->hidden, m->dtype == MOE_BF16 ? "bf16" : "fp32",
           (unsigned long long)m->seed, run->o.iters, (unsigned long long)r->tokens_min, (unsigned long long)r->tokens_max,
           m->row_bytes);
    for (int which = 1; which >= 0; which--) {
        for (int pe = 0; pe < m->n_pes; pe++)
            printf("%s%llu", pe ? "," : "",
                   (unsigned long long)sum_word(m, all, (size_t)(REPORT_FIXED + m->experts + which * m->n_pes + pe)));
        printf("%s", which ? "],\"rows_routed\":[" : "]");
    }
    printf(",\"dispatch_us\":%.3f,\"combine_us\":%.3f,\"error\":%.6g,\"tolerance\":%.6g,\"largest\":%.6g,\"wrong\":%llu,"
           "\"ok\":%s}\n",
           r->us[MOE_DISPATCH], r->us[MOE_COMBINE], isfinite(r->error) ? r->error : 1e300, r->tolerance, r->largest,
           (unsigned long long)r->wrong, r->ok ? "true" : "false");
}

static bool report(struct run *run, const tern_info_t *info)
{
    struct result result;
    uint64_t *all = calloc((size_t)run->m.n_pes * report_words(&run->m), sizeof *all);

    if (!all)
        return fail("no memory");
    if (!exchange_reports(run, all)) {
        free(all);
        return false;
    }
    sum_up(&run->m, all, &result);
    if (run->m.pe == 0 && run->o.json)
        print_json(run, all, &result);
    else if (run->m.pe == 0)
        print_table(run, all, &result, info);
    fflush(stdout); /* before the others may end: a launcher kills the job when one of them ends with a failure */
    free(all);
    return result.ok;
}

static bool run_layer(struct run *run)
{
    tern_info_t info = {.size = sizeof info};

    if (tern_get_info(&info) != TERN_OK || tern_ctx(&run->ctx) != TERN_OK)
        return fail("no context");
    shape_layer(&run->m, &run->o, &info);
    if (!open_host(run) || !open_symmetric(run) || !open_local(run) || !run_passes(run))
        return false;
    if (!moe_check(&run->m, &run->b, run->words, (uint64_t)run->o.iters + 1, &run->verdict))
        return fail("no memory for the reference");
    return report(run, &info);
}

int main(int argc, char **argv)
{
    static struct run run;
    int status = moe_options_parse(&run.o, argc, argv);

    if (status >= 0)
        goto out_options;
    status = 2;
    if (!moe_text_read(&run.text, run.o.files, run.o.file_count))
        goto out_options;
    status = 1;
    if (tern_init() != TERN_OK) {
        fail("cannot start");
        goto out_text;
    }
    status = run_layer(&run) ? 0 : 1;
    close_run(&run);
    if (tern_finalize() != TERN_OK)
        status = 1;
out_text:
    moe_text_free(&run.text);
out_options:
    free(run.o.files);
    return status;
}
