/*
 * reference.c - the same layer once more, on the host, in double precision, after the timed part; and all checks:
 *   routing   the rows that were sent carry the right embedding, and the gate's choice is the best one up to rounding
 *   sent      rows sent to each PE = the routing's own count
 *   received  every row that came is, bit for bit, the token that it says it is
 *   output    against the experts' result; weights of all experts are made here, one expert at a time
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe.h"

struct reference {
    const struct moe_layer *m;
    const uint64_t *words;
    char *out_rows, *in_rows, *output; /* copies of device memory, as in moe_buffers */
    uint64_t *in_count;
    unsigned long long *sent;
    double *weight; /* [my_tokens][topk] of the gate */
    double *sum;    /* [my_tokens][hidden] the reference's output */
    struct moe_verdict *verdict;
};

/* Count a failed check; the first few are printed. */
static void wrong(struct reference *r, const char *text, int a, int b)
{
    if (r->verdict->wrong++ < 4) {
        fprintf(stderr, "moe_layer: PE %d: ", r->m->pe);
        fprintf(stderr, text, a, b);
        fputc('\n', stderr);
    }
}

static void *download(const void *device, size_t bytes)
{
    void *host = malloc(bytes ? bytes : 1);
    if (host && !moe_download(host, device, bytes)) {
        free(host);
        return NULL;
    }
    return host;
}

/* The values of a token, as every PE must have them: `row` has room for value_bytes. */
static void embed(const struct reference *r, int token, void *row)
{
    uint64_t position = moe_key(r->m->seed, MOE_STREAM_POSITION, (uint64_t)token);
    for (int j = 0; j < r->m->hidden; j++)
        moe_store(row, (size_t)j, moe_embedding(r->words[token], position, j), r->m->dtype);
}

/* ---- routing ------------------------------------------------------------------------------------------------------------- */

/* The chosen experts are distinct, in order, and none that was left out is better by more than rounding can explain. */
static bool choice_is_best(const struct moe_layer *m, const struct moe_head *head, const double *logits, double slack)
{
    for (int k = 0; k < m->topk; k++) {
        if (head->expert[k] < 0 || head->expert[k] >= m->experts)
            return false;
        for (int i = 0; i < k; i++) {
            if (head->expert[i] == head->expert[k])
                return false;
        }
        if (k > 0 && logits[head->expert[k]] > logits[head->expert[k - 1]] + slack)
            return false;
    }
    for (int e = 0; e < m->experts; e++) {
        bool chosen = false;
        for (int k = 0; k < m->topk; k++)
            chosen |= head->expert[k] == e;
        if (!chosen && logits[e] > logits[head->expert[m->topk - 1]] + slack)
            return false;
    }
    return true;
}

static void check_gate(struct reference *r, int t, const double *gate, double *logits)
{
    const struct moe_layer *m = r->m;
    const struct moe_head *head = moe_row(r->out_rows, (size_t)t, m);
    double sum = 0, slack = 1e-5 * m->gate_scale * sqrt(m->hidden);

    for (int e = 0; e < m->experts; e++) {
        logits[e] = 0;
        for (int j = 0; j < m->hidden; j++)
            logits[e] += gate[(size_t)e * (size_t)m->hidden + (size_t)j] * moe_load(head + 1, (size_t)j, m->dtype);
    }
    if (head->token != t || !choice_is_best(m, head, logits, slack)) {
        wrong(r, "token %d: the gate's choice is not the best one (first expert %d)", t, head->expert[0]);
        return;
    }
    for (int k = 0; k < m->topk; k++)
        sum += exp(logits[head->expert[k]] - logits[head->expert[0]]);
    for (int k = 0; k < m->topk; k++)
        r->weight[t * m->topk + k] = exp(logits[head->expert[k]] - logits[head->expert[0]]) / sum;
}

/* False: no memory. */
static bool check_routing(struct reference *r)
{
    const struct moe_layer *m = r->m;
    double *gate = malloc((size_t)m->experts * (size_t)m->hidden * sizeof *gate);
    double *logits = malloc((size_t)m->experts * sizeof *logits);
    void *row = malloc(m->value_bytes);
    bool fits = gate && logits && row;

    for (int e = 0; fits && e < m->experts; e++) {
        for (int j = 0; j < m->hidden; j++)
            gate[(size_t)e * (size_t)m->hidden + (size_t)j] = moe_gate_weight(m, e, j);
    }
    for (int t = 0; fits && t < m->my_tokens; t++) {
        const struct moe_head *head = moe_row(r->out_rows, (size_t)t, m);
        embed(r, m->first_token + t, row);
        if (memcmp(head + 1, row, m->value_bytes) != 0)
            wrong(r, "token %d (word hash %08x): the embedding is not right", t, (int)r->words[m->first_token + t]);
        check_gate(r, t, gate, logits);
        for (int k = 0; k < m->topk; k++) {
            if (head->expert[k] >= 0 && head->expert[k] < m->experts)
                r->verdict->expert_tokens[head->expert[k]]++;
        }
    }
    free(gate);
    free(logits);
    free(row);
    return fits;
}

/* ---- what was sent and what came --------------------------------------------------------------------------------------------- */

static bool goes_to(const struct moe_layer *m, const struct moe_head *head, int pe)
{
    for (int k = 0; k < m->topk; k++) {
        if (moe_owner(m, head->expert[k]) == pe)
            return true;
    }
    return false;
}

static void check_sent(struct reference *r, uint64_t passes)
{
    for (int pe = 0; pe < r->m->n_pes; pe++) {
        uint64_t rows = 0;
        for (int t = 0; t < r->m->my_tokens; t++)
            rows += goes_to(r->m, moe_row(r->out_rows, (size_t)t, r->m), pe);
        r->verdict->routed[pe] = rows;
        r->verdict->sent[pe] = r->sent[pe] / passes;
        if (r->sent[pe] != rows * passes)
            wrong(r, "rows sent to PE %d differ from the routing's count by %d", pe, (int)(r->sent[pe] - rows * passes));
    }
}

static bool check_received(struct reference *r)
{
    const struct moe_layer *m = r->m;
    void *row = malloc(m->value_bytes);

    for (int pe = 0; row && pe < m->n_pes; pe++) {
        int first = moe_share_first(m->tokens, pe, m->n_pes), share = moe_share_first(m->tokens, pe + 1, m->n_pes) - first;
        int rows = (int)(uint32_t)r->in_count[pe], last = -1;
        if (rows > share) {
            wrong(r, "PE %d sent %d rows: more than it has", pe, rows);
            continue;
        }
        for (int i = 0; i < rows; i++) {
            const struct moe_head *head = moe_row(r->in_rows, (size_t)pe * (size_t)m->max_tokens + (size_t)i, m);
            if (head->token <= last || head->token >= share || !goes_to(m, head, m->pe)) {
                wrong(r, "row %d from PE %d is not one that belongs here", i, pe);
                continue;
            }
            last = head->token;
            embed(r, first + head->token, row);
            if (memcmp(head + 1, row, m->value_bytes) != 0)
                wrong(r, "row %d from PE %d differs from the token that it stands for", i, pe);
        }
    }
    free(row);
    return row != NULL;
}

/* ---- output -------------------------------------------------------------------------------------------------------------------- */

struct expert {
    float *gate, *up, *down;
    double *h;
};

static void make_expert(const struct moe_layer *m, int e, struct expert *x)
{
    size_t n = (size_t)m->hidden * (size_t)m->width;
    float *matrix[3] = {x->gate, x->up, x->down};

    for (int which = 0; which < 3; which++) {
        for (size_t i = 0; i < n; i++) {
            uint32_t rounded;
            moe_store(&rounded, 0, moe_weight(m, e, which, i), m->dtype);
            matrix[which][i] = moe_load(&rounded, 0, m->dtype);
        }
    }
}

/* sum += weight * down(silu(gate(x)) * up(x)) */
static void apply_expert(const struct moe_layer *m, const struct expert *e, const void *token, double weight, double *sum)
{
    double *up = e->h + m->width;

    memset(e->h, 0, 2 * (size_t)m->width * sizeof *e->h);
    for (int j = 0; j < m->hidden; j++) {
        double x = moe_load(token, (size_t)j, m->dtype);
        const float *wg = e->gate + (size_t)j * (size_t)m->width, *wu = e->up + (size_t)j * (size_t)m->width;
        for (int f = 0; f < m->width; f++) {
            e->h[f] += x * wg[f];
            up[f] += x * wu[f];
        }
    }
    for (int f = 0; f < m->width; f++) {
        double h = weight * e->h[f] / (1 + exp(-e->h[f])) * up[f];
        const float *wd = e->down + (size_t)f * (size_t)m->hidden;
        for (int j = 0; j < m->hidden; j++)
            sum[j] += h * wd[j];
    }
}

static bool compute_reference(struct reference *r)
{
    const struct moe_layer *m = r->m;
    size_t n = (size_t)m->hidden * (size_t)m->width;
    struct expert x = {malloc(n * sizeof(float)), malloc(n * sizeof(float)), malloc(n * sizeof(float)),
                       malloc(2 * (size_t)m->width * sizeof(double))};
    bool fits = x.gate && x.up && x.down && x.h;

    for (int e = 0; fits && e < m->experts; e++) {
        bool made = false;
        for (int t = 0; t < m->my_tokens; t++) {
            const struct moe_head *head = moe_row(r->out_rows, (size_t)t, m);
            for (int k = 0; k < m->topk; k++) {
                if (head->expert[k] != e)
                    continue;
                if (!made)
                    make_expert(m, e, &x);
                made = true;
                apply_expert(m, &x, head + 1, r->weight[t * m->topk + k], r->sum + (size_t)t * (size_t)m->hidden);
            }
        }
    }
    free(x.gate);
    free(x.up);
    free(x.down);
    free(x.h);
    return fits;
}

static void compare_output(struct reference *r)
{
    const struct moe_layer *m = r->m;

    for (size_t i = 0; i < (size_t)m->my_tokens * (size_t)m->hidden; i++) {
        double error = fabs(moe_load(r->output, i, m->dtype) - r->sum[i]), value = fabs(r->sum[i]);
        if (!(error <= r->verdict->error)) /* true for a NaN, too, which then stays */
            r->verdict->error = isnan(error) ? INFINITY : error;
        if (value > r->verdict->largest)
            r->verdict->largest = value;
    }
}

bool moe_check(const struct moe_layer *m, const struct moe_buffers *b, const uint64_t *words, uint64_t passes,
               struct moe_verdict *verdict)
{
    size_t tokens = (size_t)m->my_tokens, slots = (size_t)m->n_pes * (size_t)m->max_tokens;
    struct reference r = {
        .m = m, .words = words, .verdict = verdict,
        .out_rows = download(b->out_rows, tokens * m->row_bytes),
        .in_rows = download(b->in_rows, slots * m->row_bytes),
        .in_count = download(b->in_count, (size_t)m->n_pes * sizeof(uint64_t)),
        .sent = download(b->sent, (size_t)m->n_pes * sizeof(unsigned long long)),
        .output = download(b->output, tokens * m->value_bytes),
        .weight = calloc(tokens * (size_t)m->topk + 1, sizeof(double)),
        .sum = calloc(tokens * (size_t)m->hidden + 1, sizeof(double)),
    };
    bool done = r.out_rows && r.in_rows && r.in_count && r.sent && r.output && r.weight && r.sum;

    verdict->wrong = 0;
    verdict->error = verdict->largest = 0;
    done = done && check_routing(&r);
    if (done && verdict->wrong == 0) { /* the rest builds on a sane routing */
        check_sent(&r, passes);
        done = check_received(&r) && compute_reference(&r);
        compare_output(&r);
    }
    free(r.out_rows);
    free(r.in_rows);
    free(r.in_count);
    free(r.sent);
    free(r.output);
    free(r.weight);
    free(r.sum);
    return done;
}
