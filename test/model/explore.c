/*
 * explore.c - breadth-first search over all states of a program: states by 64-bit hash, shortest traces. Where a step
 * stays possible, commutes with all others and is needed by all that depend on it, it alone is followed (a small ample
 * set).
 */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct config *config;
enum net net;
struct program program;
char violation[400], described[200];
bool describing;

static const char *const net_names[NETS] = {"verbs", "null", "ucx", "loopback"};

/* Actions by number: what happens next. */
enum {
    ACTION_THREAD = 0,
    ACTION_VISIBLE = ACTION_THREAD + MAX_THREADS,    /* a half of an entry */
    ACTION_STORE = ACTION_VISIBLE + MAX_ENTRIES * 4, /* a direct store arrives */
    ACTION_VISIT = ACTION_STORE + MAX_WIRES,
    ACTION_PUBLISH = ACTION_VISIT + MAX_RINGS,
    ACTION_PUMP = ACTION_PUBLISH + MAX_RINGS,
    ACTION_DELIVER = ACTION_PUMP + MAX_DESTS,
    ACTION_SENT = ACTION_DELIVER + MAX_DESTS * MAX_LISTED * 2,
    ACTION_ANSWER = ACTION_SENT + MAX_WIRES,
    ACTIONS = ACTION_ANSWER + MAX_ANSWERS
};
_Static_assert(ACTIONS < 256, "actions are kept in a byte");
_Static_assert(sizeof(struct state) % 8 == 0, "states are hashed by words");

enum outcome violated(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(violation, sizeof violation, format, args);
    va_end(args);
    return VIOLATED;
}

const char *wire_names(uint32_t mask)
{
    static char text[MAX_WIRES * 12];
    text[0] = 0;
    for (int w = 0; w < program.wires; w++)
        if (has(mask, w))
            sprintf(text + strlen(text), "%s%s", text[0] ? "," : "", program.wire[w].name);
    return text;
}

static enum outcome direct_store_arrives(struct state *s, int wire)
{
    if (!has(s->stored, wire))
        return BLOCKED;
    s->stored &= ~bit(wire);
    DESCRIBE("memory: direct store %s arrives", program.wire[wire].name);
    return net_arrive(s, wire);
}

static enum outcome act_alone(struct state *s, int a)
{
    if (a < ACTION_VISIBLE)
        return a < program.threads ? gpu_thread_step(s, a) : BLOCKED;
    if (a < ACTION_STORE)
        return gpu_half_visible(s, (a - ACTION_VISIBLE) / 4, (a - ACTION_VISIBLE) % 4);
    if (a < ACTION_VISIT)
        return direct_store_arrives(s, a - ACTION_STORE);
    if (a < ACTION_PUBLISH)
        return a - ACTION_VISIT < program.rings ? proxy_visit(s, a - ACTION_VISIT) : BLOCKED;
    if (a < ACTION_PUMP)
        return a - ACTION_PUBLISH < program.rings ? proxy_publish(s, a - ACTION_PUBLISH) : BLOCKED;
    if (a < ACTION_DELIVER)
        return proxy_pump(s, a - ACTION_PUMP);
    if (a < ACTION_SENT) {
        int i = a - ACTION_DELIVER;
        return net_deliver(s, i / 2 / MAX_LISTED, i / 2 % MAX_LISTED, i & 1);
    }
    if (a < ACTION_ANSWER)
        return net_sent(s, a - ACTION_SENT);
    return proxy_answer(s, a - ACTION_ANSWER);
}

/* A blocked action leaves the state as it was. */
static enum outcome act(struct state *s, int a)
{
    enum outcome o = act_alone(s, a);
    return o == DONE ? proxy_settle(s) : o;
}

static int only_action(const struct state *s)
{
    for (int t = 0; t < program.threads; t++)
        if (gpu_step_is_free(s, t))
            return ACTION_THREAD + t;
    for (int q = 0; q < program.answers; q++)
        if (proxy_owes(s, q))
            return ACTION_ANSWER + q;
    return -1;
}

/* Nothing is possible any more: is this the end? */
static enum outcome check_end(const struct state *s)
{
    char threads[MAX_THREADS * 2 + 1] = "";
    uint32_t lost = 0;
    for (int t = 0; t < program.threads; t++)
        if (program.step[t][s->thread[t].pc].kind != STEP_END && (!config->never || has(config->must, t)))
            sprintf(threads + strlen(threads), " %c", 'A' + t);
    for (int w = 0; w < program.wires; w++) {
        const struct wire *x = &program.wire[w];
        if (!has(s->arrived, w) && (!config->never || (has(config->must, x->thread) && !has(config->never, x->dest))))
            lost |= bit(w);
    }
    if (!threads[0] && !lost)
        return DONE;
    return violated("%s: threads [%s ] do not end, [%s] do not arrive",
                    config->never ? "(5) HELD UP by the destination that never completes" : "(4) DEADLOCK", threads,
                    wire_names(lost));
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

struct list {
    struct state *states;
    size_t count, room;
};
struct search {
    uint64_t *table;   /* hashes of all states seen; 0: free */
    size_t table_size; /* a power of two */
    uint32_t *parent;  /* of each state in the order found: the state it came from, by which action */
    uint8_t *action;
    size_t count, room;
    struct list layer, next;
    uint32_t bad; /* where the violation is: from this state, by this action (-1: it is the end) */
    int bad_action;
};

static void *need(void *p)
{
    if (!p) {
        fprintf(stderr, "model: no memory\n");
        exit(2);
    }
    return p;
}

static uint64_t hash(const struct state *s)
{
    uint64_t h = 0x9e3779b97f4a7c15u, word;
    for (size_t i = 0; i < sizeof *s; i += 8) {
        memcpy(&word, (const char *)s + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 29;
        h = h * 0xc4ceb9fe1a85ec53u + i;
        h ^= h >> 32;
    }
    return h ? h : 1;
}

static bool table_add(struct search *x, uint64_t h)
{
    size_t mask = x->table_size - 1, i = h & mask;
    while (x->table[i]) {
        if (x->table[i] == h)
            return false;
        i = (i + 1) & mask;
    }
    x->table[i] = h;
    return true;
}

static void table_grow(struct search *x)
{
    uint64_t *old = x->table;
    size_t size = x->table_size;
    x->table_size *= 2;
    x->table = need(calloc(x->table_size, sizeof *x->table));
    for (size_t i = 0; i < size; i++)
        if (old[i])
            table_add(x, old[i]);
    free(old);
}

static void found(struct search *x, const struct state *s, uint32_t parent, int action)
{
    if (!table_add(x, hash(s)))
        return;
    if (x->count * 2 > x->table_size)
        table_grow(x);
    if (x->count == x->room) {
        x->room = x->room ? x->room * 2 : 1024;
        x->parent = need(realloc(x->parent, x->room * sizeof *x->parent));
        x->action = need(realloc(x->action, x->room));
    }
    x->parent[x->count] = parent;
    x->action[x->count++] = (uint8_t)action;
    struct list *l = &x->next;
    if (l->count == l->room) {
        l->room = l->room ? l->room * 2 : 256;
        l->states = need(realloc(l->states, l->room * sizeof *l->states));
    }
    memcpy(&l->states[l->count++], s, sizeof *s);
}

/* All that can follow state number `number`. */
static enum outcome expand(struct search *x, const struct state *from, uint32_t number, bool all_steps)
{
    struct state s;
    bool any = false;
    int only = all_steps ? -1 : only_action(from);
    memcpy(&s, from, sizeof s);
    for (int a = only < 0 ? 0 : only; a < (only < 0 ? ACTIONS : only + 1); a++) {
        enum outcome o = act(&s, a);
        if (o == BLOCKED)
            continue;
        any = true;
        if (o == VIOLATED) {
            x->bad = number;
            x->bad_action = a;
            return VIOLATED;
        }
        found(x, &s, number, a);
        memcpy(&s, from, sizeof s);
    }
    if (any)
        return DONE;
    x->bad = number;
    x->bad_action = -1;
    return check_end(from);
}

static void start_state(struct state *s)
{
    memset(s, 0, sizeof *s);
    if (!MUTANT(slots_start_zero))
        memset(s->slot_ticket, NONE, sizeof s->slot_ticket);
}

static enum result search(struct search *x, const struct explore_options *options)
{
    struct state start;
    start_state(&start);
    x->table_size = 1 << 14;
    x->table = need(calloc(x->table_size, sizeof *x->table));
    found(x, &start, 0, 0);
    uint32_t number = 0;
    while (x->next.count) {
        struct list layer = x->next;
        x->next = x->layer;
        x->layer = layer;
        x->next.count = 0;
        for (size_t i = 0; i < layer.count; i++)
            if (expand(x, &layer.states[i], number++, options->all_steps) == VIOLATED)
                return FOUND;
        if (x->count > options->most_states)
            return CUT;
    }
    return HOLDS;
}

static void print_trace(const struct search *x)
{
    size_t length = 0;
    for (uint32_t i = x->bad; i; i = x->parent[i])
        length++;
    uint8_t *actions = need(malloc(length + 1));
    size_t n = length;
    for (uint32_t i = x->bad; i; i = x->parent[i])
        actions[--n] = x->action[i];
    struct state s;
    start_state(&s);
    printf("  %zu steps:\n", length + (x->bad_action >= 0));
    describing = true;
    for (size_t i = 0; i < length + (x->bad_action >= 0); i++) {
        char mine[sizeof described];
        described[0] = 0;
        enum outcome o = act_alone(&s, i < length ? actions[i] : x->bad_action);
        strcpy(mine, described);
        if (o == DONE)
            proxy_settle(&s);
        printf("    %s\n", mine);
    }
    describing = false;
    free(actions);
}

static void with_defaults(struct config *c)
{
    c->proxies = c->proxies ? c->proxies : 1;
    c->channels = c->channels ? c->channels : 1;
    c->depth = c->depth ? c->depth : 4;
    c->credits = c->credits ? c->credits : 2;
    c->pending = c->pending ? c->pending : 2;
    c->dests = c->dests ? c->dests : 1;
    c->slots = c->slots ? c->slots : 1;
    c->batch = c->batch ? c->batch : 2;
}

static void report(const struct search *x, const struct exploration *e, const struct explore_options *options)
{
    static const char *const texts[] = {"holds", violation, "cut, nothing found so far", "does not fit the model"};
    if (options->quiet && e->as_expected)
        return;
    printf("%-36s %9zu  %s%s\n", config->name, e->states, texts[e->result],
           e->as_expected ? "" : "   <<< NOT AS EXPECTED");
    if (e->result == FOUND && (options->traces || !e->as_expected))
        print_trace(x);
    fflush(stdout);
}

struct exploration explore(const struct config *c, enum net n, const struct explore_options *options)
{
    struct config full = *c;
    struct search x = {0};
    struct exploration e = {.result = TOO_BIG};
    char name[400];
    with_defaults(&full);
    snprintf(name, sizeof name, "%s/%s", c->name, net_names[n]);
    full.name = name;
    config = &full;
    net = n;
    violation[0] = 0;
    if (program_compile())
        e.result = search(&x, options);
    e.states = x.count;
    if (c->expect)
        e.as_expected = e.result == FOUND && !strncmp(violation, c->expect, strlen(c->expect));
    else
        e.as_expected = e.result == HOLDS || (options->cut_ok && e.result != FOUND);
    report(&x, &e, options);
    free(x.table);
    free(x.parent);
    free(x.action);
    free(x.layer.states);
    free(x.next.states);
    config = NULL;
    return e;
}
