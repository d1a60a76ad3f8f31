/*
 * program.c - scripts to steps. Notes for every wire operation what must have arrived before it, and for every quiet
 * what it must have waited for: from program order, grid syncs and fences, not from how the protocol does it.
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 24 };

static struct {
    char token[MAX_THREADS][MAX_TOKENS][4];
    int tokens[MAX_THREADS], at[MAX_THREADS];
    uint32_t before[MAX_THREADS]; /* wires that happened before */
    uint32_t own[MAX_THREADS];    /* its own ones */
    uint32_t fenced[MAX_THREADS]; /* those that a fence or quiet put before what it does next */
    int t;                        /* thread and token under work */
    const char *name;
    bool too_big;
} now;

/* ---- parts of a program ------------------------------------------------------------------------------------------ */

static void add_step(enum step_kind kind, int arg, int count, int proxy, uint32_t mask)
{
    int n = 0;
    while (program.step[now.t][n].kind != STEP_END)
        n++;
    if (n + 1 >= MAX_STEPS) {
        now.too_big = true;
        return;
    }
    program.step[now.t][n] = (struct step){(uint8_t)kind, (uint8_t)arg, (uint8_t)count, (uint8_t)proxy, mask};
}

static void part_name(char *name, const char *suffix)
{
    snprintf(name, 12, "%c%d.%.3s%s", 'A' + now.t, now.at[now.t], now.name, suffix);
}

static int add_wire(unsigned kind, int dest, const char *suffix)
{
    if (program.wires == MAX_WIRES) {
        now.too_big = true;
        return 0;
    }
    int i = program.wires++;
    struct wire *w = &program.wire[i];
    *w = (struct wire){.kind = (uint8_t)kind, .dest = (uint8_t)dest, .thread = (uint8_t)now.t, .signal = NONE};
    part_name(w->name, suffix);
    for (int o = 0; o < i; o++)
        if (has(now.fenced[now.t], o) && program.wire[o].dest == dest && program.wire[o].kind != WIRE_READ)
            w->needs |= bit(o);
    now.before[now.t] |= bit(i);
    now.own[now.t] |= bit(i);
    return i;
}

static int add_entry(enum entry_kind kind, int dest, int units, int proxy, bool answered)
{
    if (program.entries == MAX_ENTRIES || program.answers == MAX_ANSWERS) {
        now.too_big = true;
        return 0;
    }
    int i = program.entries++, ring = config->channel[now.t] * config->proxies + proxy;
    struct entry *e = &program.entry[i];
    *e = (struct entry){(uint8_t)kind,  (uint8_t)dest, (uint8_t)units,
                        (uint8_t)proxy, (uint8_t)ring, (uint8_t)now.t,
                        {NONE, NONE},   NONE,          ""};
    if (answered)
        e->answer = (uint8_t)program.answers++;
    part_name(e->name, kind == ENTRY_REPLY ? "r" : "");
    return i;
}

static void entry_op(int entry, int op)
{
    struct entry *e = &program.entry[entry];
    e->op[e->op[0] == NONE ? 0 : 1] = (uint8_t)op;
    program.ops_of_dest[e->dest] |= bit(op);
    program.ops_of_ring[e->ring] |= bit(op);
}

static int data_entry(int op, int units, bool answered)
{
    int dest = program.wire[op].dest, e = add_entry(ENTRY_DATA, dest, units, dest % config->proxies, answered);
    entry_op(e, op);
    return e;
}

/* ---- pieces of calls --------------------------------------------------------------------------------------------- */

static void take_slot(int proxy, bool any)
{
    if (!MUTANT(slot_after_ticket))
        add_step(STEP_SLOT, any ? 0 : config->kept, 0, proxy, 0);
}

static void push(int entry)
{
    const struct entry *e = &program.entry[entry];
    add_step(STEP_TICKET, entry, e->units, e->proxy, 0);
    if (MUTANT(slot_after_ticket) && e->answer != NONE)
        add_step(STEP_SLOT, 0, 0, e->proxy, 0);
    add_step(STEP_STORE, entry, 1, e->proxy, 0);
}

static void wait_reply(int entry, uint32_t arrived)
{
    add_step(STEP_WAIT_REPLY, entry, 0, program.entry[entry].proxy, arrived);
}

/* A system fence is cumulative: also what others did before a sync. */
static void release(void)
{
    add_step(STEP_RELEASE, 0, 0, 0, now.before[now.t]);
}

static void wait_for_rings(int proxy1)
{
    if (MUTANT(other_rings_ignored))
        return;
    add_step(STEP_READ_HEADS, MUTANT(quiet_pe_all_proxies) ? 0 : proxy1, 0, 0, 0);
    add_step(STEP_WAIT_TAKEN, 0, 0, 0, 0);
}

static void push_fences(void)
{
    if (MUTANT(no_fence_entry))
        return;
    for (int k = 0; k < (MUTANT(fence_entry_one_proxy) ? 1 : config->proxies); k++)
        push(add_entry(ENTRY_FENCE, DEST_ALL, 1, k, false));
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static bool is_direct(int dest)
{
    return has(config->direct, dest);
}

static int direct_store(int dest, const char *suffix)
{
    int w = add_wire(WIRE_DIRECT, dest, suffix);
    add_step(STEP_DIRECT, w, 0, 0, 0);
    return w;
}

/* An atomic that waits for its answer: it fetches, or the target is a load/store peer. */
static void answered_atomic(unsigned kind, int dest, int after, const char *suffix)
{
    bool answered = !(is_direct(dest) && MUTANT(direct_atomic_not_answered));
    if (is_direct(dest))
        release();
    if (answered)
        take_slot(dest % config->proxies, true);
    int w = add_wire(kind, dest, suffix);
    if (after >= 0)
        program.wire[w].needs |= bit(after);
    int e = data_entry(w, 2, answered);
    push(e);
    if (answered)
        wait_reply(e, bit(w));
}

static void call_put_signal_direct(char token, int dest)
{
    int data = direct_store(dest, "");
    if (token == 'M') {
        answered_atomic(net_kind('A'), dest, data, "+");
        return;
    }
    release();
    int signal = direct_store(dest, "s");
    program.wire[signal].needs |= bit(data);
}

/* An ADD signal is split at intake where the transport has no atomics of its own. */
static void call_put_signal(char token, int dest)
{
    int data = add_wire(WIRE_WRITE, dest, "");
    int signal = add_wire(token == 'L' ? WIRE_WRITE : net_kind('A'), dest, "s");
    int e = data_entry(data, 2, false);
    program.wire[signal].needs |= bit(data);
    if (program.wire[signal].kind == WIRE_RPC)
        entry_op(e, signal);
    else
        program.wire[data].signal = (uint8_t)signal;
    push(e);
}

/* PUT or GET, and REPLY: one reservation of consecutive tickets. */
static void call_blocking(char token, int dest)
{
    int proxy = dest % config->proxies;
    take_slot(proxy, token == 'g');
    int w = add_wire(token == 'B' ? WIRE_WRITE : WIRE_READ, dest, "");
    program.wire[w].source = token == 'B';
    int e = data_entry(w, 1, false), r = add_entry(ENTRY_REPLY, dest, 1, proxy, true);
    if (MUTANT(reply_apart)) {
        push(e);
        push(r);
    } else {
        add_step(STEP_TICKET, e, 2, proxy, 0);
        if (MUTANT(slot_after_ticket))
            add_step(STEP_SLOT, 0, 0, proxy, 0);
        add_step(STEP_STORE, e, 0, proxy, 0);
        add_step(STEP_STORE, r, 1, proxy, 0);
    }
    add_step(token == 'B' ? STEP_WAIT_SOURCE : STEP_WAIT_REPLY, r, 0, proxy, bit(w));
}

static void call_g(int dest)
{
    take_slot(dest % config->proxies, true);
    int w = add_wire(WIRE_READ, dest, ""), e = data_entry(w, 1, true);
    push(e);
    wait_reply(e, bit(w));
}

static void call_fence(void)
{
    if (MUTANT(fence_entry_first))
        push_fences();
    release();
    wait_for_rings(0);
    if (!MUTANT(fence_entry_first))
        push_fences();
    now.fenced[now.t] |= now.before[now.t];
}

static void call_fence_block(void)
{
    if (!MUTANT(block_fence_no_system_fence))
        release();
    push_fences();
    now.fenced[now.t] |= now.own[now.t];
}

static void quiet_slots(int first, int end)
{
    bool descending = MUTANT(slots_descending) && (now.t & 1);
    for (int k = first; k < end; k++)
        take_slot(descending ? end - 1 - (k - first) : k, false);
}

static void call_quiet(const char *token)
{
    bool block = token[0] == 'q', all = block || token[1] == 'a';
    int dest = all ? DEST_ALL : token[1] - '0';
    int first = all ? 0 : dest % config->proxies, end = all ? config->proxies : first + 1, quiet[MAX_PROXIES];
    uint32_t covers = block ? now.own[now.t] : now.before[now.t], done = 0;
    for (int w = 0; w < program.wires; w++)
        if (has(covers, w) && (all || program.wire[w].dest == dest))
            done |= bit(w);
    if (MUTANT(slot_before_wait))
        quiet_slots(first, end);
    release();
    if (!block)
        wait_for_rings(all ? 0 : first + 1);
    if (!MUTANT(slot_before_wait))
        quiet_slots(first, end);
    for (int k = first; k < end; k++) {
        quiet[k] = add_entry(ENTRY_QUIET, dest, 1, k, true);
        push(quiet[k]);
    }
    for (int k = first; k < end; k++)
        wait_reply(quiet[k], k == end - 1 ? done : 0);
    now.fenced[now.t] |= done;
}

static void call_host_quiet(void)
{
    program.host = true;
    add_step(STEP_HOST_ASK, 0, 0, 0, 0);
    add_step(STEP_HOST_WAIT, 0, 0, 0, now.before[now.t]);
    now.fenced[now.t] |= now.before[now.t];
}

/* ---- scripts ----------------------------------------------------------------------------------------------------- */

static void bad_token(const char *token)
{
    fprintf(stderr, "%s: '%s' is no token of a script\n", config->name, token);
    exit(2);
}

static void compile_call(const char *token)
{
    char c = token[0];
    int dest = token[1] >= '0' && token[1] <= '9' ? token[1] - '0' : -1;
    if (strchr("PLMARXBgGN", c) && (dest < 0 || dest >= config->dests))
        bad_token(token);
    switch (c) {
    case 'P':
        if (is_direct(dest))
            direct_store(dest, "");
        else
            push(data_entry(add_wire(WIRE_WRITE, dest, ""), 1, false));
        break;
    case 'L':
    case 'M':
        if (is_direct(dest))
            call_put_signal_direct(c, dest);
        else
            call_put_signal(c, dest);
        break;
    case 'A':
    case 'R':
        if (is_direct(dest))
            answered_atomic(net_kind(c), dest, -1, "");
        else
            push(data_entry(add_wire(net_kind(c), dest, ""), 2, false));
        break;
    case 'X':
        answered_atomic(net_kind('A'), dest, -1, "");
        break;
    case 'B':
    case 'g':
        call_blocking(c, dest);
        break;
    case 'G':
        call_g(dest);
        break;
    case 'N':
        push(data_entry(add_wire(WIRE_READ, dest, ""), 1, false));
        break;
    case 'F':
        call_fence();
        break;
    case 'f':
        call_fence_block();
        break;
    case 'Q':
    case 'q':
        call_quiet(token);
        break;
    case 'E':
        add_step(STEP_KERNEL_END, 0, 0, 0, now.own[now.t]);
        break;
    case 'H':
        call_host_quiet();
        break;
    default:
        bad_token(token);
    }
}

/* A rendezvous, once all its members have come to it: what happened before one of them happened before all. */
static bool compile_sync(const char *token)
{
    unsigned members = 0;
    uint32_t before = 0;
    for (int u = 0; u < program.threads; u++) {
        for (int j = 0; j < now.tokens[u]; j++) {
            if (strcmp(now.token[u][j], token))
                continue;
            if (now.at[u] != j)
                return false;
            members |= bit(u);
            before |= now.before[u];
        }
    }
    int me = now.t;
    for (now.t = 0; now.t < program.threads; now.t++) {
        if (has(members, now.t)) {
            now.before[now.t] = before;
            add_step(STEP_SYNC, token[1] - '0', (int)members, 0, 0);
            now.at[now.t]++;
        }
    }
    now.t = me;
    return true;
}

static void split_scripts(void)
{
    for (int t = 0; t < MAX_THREADS; t++) {
        for (int n = 0; n < MAX_STEPS; n++)
            program.step[t][n].kind = STEP_END;
        const char *p = config->script[t];
        if (!p || !*p)
            continue;
        program.threads = t + 1;
        for (int used; sscanf(p, " %3s%n", now.token[t][now.tokens[t]], &used) == 1; p += used)
            if (++now.tokens[t] == MAX_TOKENS)
                bad_token("...");
    }
}

bool program_compile(void)
{
    memset(&program, 0, sizeof program);
    memset(&now, 0, sizeof now);
    program.rings = config->channels * config->proxies;
    split_scripts();
    for (bool going = true; going;) {
        going = false;
        for (now.t = 0; now.t < program.threads; now.t++) {
            while (now.at[now.t] < now.tokens[now.t]) {
                now.name = now.token[now.t][now.at[now.t]];
                if (now.name[0] == 'S') {
                    if (!compile_sync(now.name))
                        break;
                } else {
                    compile_call(now.name);
                    now.at[now.t]++;
                }
                going = true;
            }
        }
    }
    for (int t = 0; t < program.threads; t++)
        now.too_big |= now.at[t] < now.tokens[t]; /* syncs that wait for each other */
    return !now.too_big;
}
