/* net.c - transports: which kinds of operations they have, in which order these arrive, when they are complete. */
#include "model.h"

#include <stdio.h>

bool net_ordered(void)
{
    return net == NET_VERBS || net == NET_NULL;
}

unsigned net_kind(char token)
{
    if (net == NET_NULL)
        return WIRE_AMO;
    if (net == NET_VERBS && token != 'R')
        return WIRE_AMO;
    return WIRE_RPC;
}

bool net_needs_flush(const struct wire *w)
{
    return (net == NET_VERBS || net == NET_UCX) && w->kind == WIRE_WRITE;
}

uint32_t net_op_wires(int op)
{
    const struct wire *w = &program.wire[op];
    return bit(op) | (w->signal != NONE ? bit(w->signal) : 0);
}

enum outcome net_arrive(struct state *s, int wire)
{
    const struct wire *w = &program.wire[wire];
    if (has(s->arrived, wire))
        return violated("(3) TWICE: %s arrived again", w->name);
    if (w->needs & ~s->arrived)
        return violated("(1) ORDER: %s arrived before %s", w->name, wire_names(w->needs & ~s->arrived));
    s->arrived |= bit(wire);
    if (w->source)
        s->sent |= bit(wire);
    return DONE;
}

/* Verbs: everything follows earlier WRITEs; READs and ATOMICs are overtaken, unless the send-fence bit forbids it. */
static bool overtakes(const struct state *s, int op, int earlier)
{
    const struct wire *v = &program.wire[earlier];
    if (program.wire[op].kind == WIRE_RPC || v->kind == WIRE_RPC) /* not by this connection */
        return true;
    if (v->kind == WIRE_WRITE && !has(s->arrived, earlier))
        return false;
    if (v->signal != NONE && program.wire[v->signal].kind == WIRE_WRITE)
        return false;
    return !has(s->after[op], earlier);
}

static bool may_arrive(const struct state *s, int dest, int place)
{
    int op = s->list[dest][place] - 1;
    for (int i = 0; i < place; i++) {
        int earlier = s->list[dest][i] - 1;
        if (program.wire[op].kind == WIRE_RPC && program.wire[earlier].kind == WIRE_RPC && !MUTANT(rpc_reordered))
            return false; /* one message is executed in order */
        if (net_ordered() && !overtakes(s, op, earlier))
            return false;
    }
    return true;
}

static void unlist(struct state *s, int dest, int place)
{
    for (int i = place + 1; i < s->listed[dest]; i++)
        s->list[dest][i - 1] = s->list[dest][i];
    s->list[dest][--s->listed[dest]] = 0;
    s->posted[dest]--;
}

/* The send-fence bit looks at arrival, not at what the proxy knows. */
static void no_longer_followed(struct state *s, int op)
{
    if (!net_ordered())
        return;
    for (int w = 0; w < program.wires; w++)
        s->after[w] &= ~bit(op);
    for (int r = 0; r < program.rings; r++)
        s->fence[r] &= ~bit(op);
}

enum outcome net_deliver(struct state *s, int dest, int place, bool signal)
{
    if (place >= s->posted[dest] || has(config->never, dest))
        return BLOCKED;
    int op = s->list[dest][place] - 1, wire = op;
    const struct wire *w = &program.wire[op];
    if (signal) {
        if (w->signal == NONE || has(s->arrived, w->signal))
            return BLOCKED;
        if (!has(s->arrived, op) && !(MUTANT(signal_with_data) && !net_ordered()))
            return BLOCKED; /* verbs: chained behind; else posted when the data are at the target */
        wire = w->signal;
    } else if (has(s->arrived, op)) {
        return BLOCKED;
    }
    if (!may_arrive(s, dest, place))
        return BLOCKED;
    DESCRIBE("network: %s arrives at destination %d", program.wire[wire].name, dest);
    if (net_arrive(s, wire) == VIOLATED)
        return VIOLATED;
    if (!(net_op_wires(op) & ~s->arrived)) {
        unlist(s, dest, place);
        no_longer_followed(s, op);
    }
    return DONE;
}

enum outcome net_sent(struct state *s, int op)
{
    const struct wire *w = &program.wire[op];
    if (!w->source || has(s->sent, op))
        return BLOCKED;
    for (int i = 0; i < s->posted[w->dest]; i++) {
        if (s->list[w->dest][i] == op + 1) {
            DESCRIBE("network: the source of %s has been read", w->name);
            s->sent |= bit(op);
            return DONE;
        }
    }
    return BLOCKED;
}
