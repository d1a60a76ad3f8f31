/* fuzz.c - random programs and configurations: without a mutation all of them have to hold. */
#include "../common/check.h"
#include "model.h"

enum { SCRIPT_BYTES = 160, FUZZ_MOST_STATES = 300000 };

struct draw {
    uint64_t *random;
    struct config c;
    char script[MAX_THREADS][SCRIPT_BYTES], name[1000];
    unsigned owed; /* operations to the destination that never completes: fewer than may be pending */
    bool sync;
};

static unsigned below(struct draw *d, unsigned n)
{
    return (unsigned)(test_random(d->random) >> 33) % n;
}

static void draw_shape(struct draw *d)
{
    static const unsigned nets[] = {VERBS, VERBS, UCX, UCX, UCX, LOOPBACK, LOOPBACK, NULL_NET};
    static const unsigned details[] = {0, 0, 0, LAZY, HALVES | LAZY};
    struct config *c = &d->c;
    c->proxies = 1 + !below(d, 3);
    c->channels = 1 + (int)below(d, c->proxies == 2 ? 2 : 3);
    c->depth = 2 + (int)below(d, 3);
    c->credits = 1 + (below(d, 3) > 0);
    c->pending = 2 + (int)below(d, 2);
    c->dests = 1 + (int)below(d, 2);
    c->slots = 1 + (int)below(d, 2);
    c->kept = c->slots == 2 ? (int)below(d, 2) : 0;
    c->batch = 1 + (int)below(d, 3);
    c->direct = !below(d, 3);
    c->detail = details[below(d, 5)];
    c->nets = nets[below(d, 8)];
    if (c->dests == 2 && c->nets != NULL_NET && !below(d, 4)) {
        c->never = 2;
        c->must = 15;
        c->pending = c->slots = 3;
        c->kept = 0;
    }
    d->sync = below(d, 3);
}

/* One call, sometimes with a fence before it. */
static void draw_call(struct draw *d, char *script)
{
    static const char calls[] = "PPPPLMAARNFfXGBgQQq"; /* from X on they wait */
    unsigned i = below(d, sizeof calls - 1), dest = below(d, (unsigned)d->c.dests);
    char token[16];
    if (d->c.never && dest == 1) {
        if (calls[i] == 'F' || i >= 12 || d->owed + 2 > (unsigned)d->c.pending)
            dest = 0;
        else
            d->owed += 2;
    }
    char c = calls[i];
    bool all = c == 'Q' && i == 17;
    if (d->c.never && (all || c == 'q'))
        c = 'Q', all = false;
    if (has(d->c.direct, dest) && strchr("NGBg", c))
        c = 'P';
    if (strchr("Ffq", c))
        snprintf(token, sizeof token, "%c ", c);
    else if (all)
        snprintf(token, sizeof token, "Qa ");
    else
        snprintf(token, sizeof token, "%c%u ", c, dest);
    if (script[0] && !below(d, 2))
        strcat(script, below(d, 4) ? "F " : "f ");
    strcat(script, token);
}

static void draw_program(struct draw *d)
{
    unsigned threads = 2 + below(d, 2);
    bool host = !d->c.never && !below(d, 5);
    if (host)
        d->sync = true;
    for (unsigned t = 0; t < threads; t++) {
        unsigned calls = 1 + below(d, threads == 2 && !host ? 4 : 3), sync_at = below(d, calls + 1);
        d->c.channel[t] = (int)below(d, (unsigned)d->c.channels);
        for (unsigned i = 0; i <= calls; i++) {
            if (d->sync && i == sync_at && t < 2)
                strcat(d->script[t], host ? "E S1 " : "S1 ");
            if (i < calls)
                draw_call(d, d->script[t]);
        }
        d->c.script[t] = d->script[t];
    }
    if (host) {
        strcpy(d->script[threads], "S1 H");
        d->c.script[threads] = d->script[threads];
    }
}

static void name_it(struct draw *d, unsigned number)
{
    const struct config *c = &d->c;
    snprintf(
        d->name, sizeof d->name,
        "fuzz %u {\"%s\", \"%s\", \"%s\", \"%s\"}, CH(%d, %d, %d), .proxies = %d, .channels = %d, .depth = %d, "
        ".credits = %d, .pending = %d, .dests = %d, .slots = %d, .kept = %d, .batch = %d, .direct = %u, .detail = %u, "
        ".never = %u, .must = %u",
        number, d->script[0], d->script[1], d->script[2], d->script[3], c->channel[0], c->channel[1], c->channel[2],
        c->proxies, c->channels, c->depth, c->credits, c->pending, c->dests, c->slots, c->kept, c->batch, c->direct,
        c->detail, c->never, c->must);
    d->c.name = d->name;
}

struct fuzz_result fuzz(unsigned count, uint64_t seed, enum mutation mutation)
{
    struct fuzz_result sum = {0};
    struct explore_options options = {.quiet = true, .most_states = FUZZ_MOST_STATES, .cut_ok = true};
    for (unsigned i = 0; i < count; i++) {
        struct draw d = {.random = &seed, .c.mutation = mutation};
        draw_shape(&d);
        draw_program(&d);
        name_it(&d, i);
        enum net n = (enum net)__builtin_ctz(d.c.nets);
        struct exploration e = explore(&d.c, n, &options);
        sum.states += e.states;
        sum.held += e.result == HOLDS;
        sum.cut += e.result == CUT;
        sum.too_big += e.result == TOO_BIG;
        sum.failed += e.result == FOUND;
    }
    return sum;
}
