/* gpu.c - what blocks do: reserve and store entries, fence, wait; when their stores become visible; the host's quiet.
 */
#include "model.h"

#include <stdio.h>
#include <string.h>

#define WHO(t) ('A' + (t))

/* Units a thread may store up to: `taken` as published. That its cache is older only means one more look. */
static bool space(const struct state *s, const struct entry *e, int ticket)
{
    return ticket + e->units <= s->published[e->ring] + config->depth + MUTANT(cache_too_high);
}

enum outcome gpu_half_visible(struct state *s, int entry, int half)
{
    const struct entry *e = &program.entry[entry];
    int unit = half / 2, ticket = s->entry_ticket[entry] + unit, depth = config->depth;
    if (!(s->unseen[entry] >> half & 1))
        return BLOCKED;
    s->unseen[entry] &= (uint8_t)~bit(half);
    DESCRIBE("memory: word %d of %s is visible", half, e->name);
    if (ticket >= s->taken[e->ring] + depth)
        return violated("(3) OVERWRITTEN: %s stored over an entry not yet taken", e->name);
    unsigned parity = 1 - ((ticket / depth) & 1);
    s->unit[e->ring][ticket % depth][half & 1] = (uint16_t)(parity << 15 | (unsigned)unit << 8 | (unsigned)(entry + 1));
    return DONE;
}

/* ---- fence and quiet --------------------------------------------------------------------------------------------- */

static enum outcome direct_stores_arrive(struct state *s, uint32_t mask)
{
    for (int w = 0; w < program.wires; w++) {
        if (has(s->stored & mask, w)) {
            s->stored &= ~bit(w);
            if (net_arrive(s, w) == VIOLATED)
                return VIOLATED;
        }
    }
    return DONE;
}

static enum outcome step_release(struct state *s, int t, const struct step *m)
{
    DESCRIBE("%c: system fence", WHO(t));
    return MUTANT(no_system_fence) ? DONE : direct_stores_arrive(s, m->mask);
}

/* All heads in one step: reading one of them later only means to wait for more. */
static enum outcome step_read_heads(struct state *s, int t, const struct step *m)
{
    for (int r = 0; r < program.rings; r++) {
        bool own = r / config->proxies == config->channel[t], other_proxy = m->arg && r % config->proxies != m->arg - 1;
        s->thread[t].heads[r] = own || other_proxy ? 0 : s->head[r];
    }
    DESCRIBE("%c: reads the heads of the other rings", WHO(t));
    return DONE;
}

static bool heads_taken(const struct state *s, int t)
{
    for (int r = 0; r < program.rings; r++)
        if (s->published[r] < s->thread[t].heads[r])
            return false;
    return true;
}

static enum outcome step_wait_taken(struct state *s, int t)
{
    if (!heads_taken(s, t))
        return BLOCKED;
    memset(s->thread[t].heads, 0, sizeof s->thread[t].heads);
    DESCRIBE("%c: the other rings are taken that far", WHO(t));
    return DONE;
}

/* ---- entries and replies ----------------------------------------------------------------------------------------- */

static enum outcome step_slot(struct state *s, int t, const struct step *m)
{
    int ring = config->channel[t] * config->proxies + m->proxy, most = config->slots - m->arg, i = 0;
    while (i < most && has(s->slots_busy[ring], i))
        i++;
    if (i >= most)
        return BLOCKED;
    s->slots_busy[ring] |= (uint8_t)bit(i);
    s->thread[t].slot[m->proxy] = (uint8_t)i;
    DESCRIBE("%c: takes reply slot %d of ring %d", WHO(t), i, ring);
    return DONE;
}

static enum outcome step_ticket(struct state *s, int t, const struct step *m)
{
    const struct entry *e = &program.entry[m->arg];
    s->thread[t].ticket = s->head[e->ring];
    s->head[e->ring] += m->count;
    DESCRIBE("%c: ticket %d of ring %d for %s", WHO(t), s->thread[t].ticket, e->ring, e->name);
    return DONE;
}

static enum outcome step_store(struct state *s, int t, const struct step *m)
{
    const struct entry *e = &program.entry[m->arg];
    struct thread *th = &s->thread[t];
    if (!space(s, e, th->ticket))
        return BLOCKED;
    s->entry_ticket[m->arg] = th->ticket;
    s->unseen[m->arg] = e->units == 2 ? 15 : 3;
    if (e->answer != NONE) {
        s->entry_slot[m->arg] = th->slot[e->proxy];
        th->expected[e->proxy] = th->ticket;
    }
    th->ticket = m->count ? 0 : (uint8_t)(th->ticket + e->units);
    for (int half = 0; half < 4 && !(config->detail & HALVES); half++)
        if (gpu_half_visible(s, m->arg, half) == VIOLATED)
            return VIOLATED;
    DESCRIBE("%c: stores %s at ticket %d of ring %d", WHO(t), e->name, s->entry_ticket[m->arg], e->ring);
    return DONE;
}

static enum outcome step_wait_reply(struct state *s, int t, const struct step *m)
{
    const struct entry *e = &program.entry[m->arg];
    struct thread *th = &s->thread[t];
    int slot = th->slot[m->proxy];
    if (s->slot_ticket[e->ring][slot] != th->expected[m->proxy])
        return BLOCKED;
    int from = s->slot_value[e->ring][slot];
    if (from != m->arg + 1)
        return violated("(3) WRONG REPLY: %s got the answer to %s", e->name,
                        from ? program.entry[from - 1].name : "nobody (memory as it started)");
    uint32_t missing = m->mask & ~(m->kind == STEP_WAIT_SOURCE ? s->sent : s->arrived);
    if (missing)
        return violated("(2) TOO EARLY: %s returned before %s", e->name, wire_names(missing));
    if (!MUTANT(slot_not_freed))
        s->slots_busy[e->ring] &= (uint8_t)~bit(slot);
    th->slot[m->proxy] = th->expected[m->proxy] = 0;
    DESCRIBE("%c: %s is answered, its slot freed", WHO(t), e->name);
    return DONE;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* The lowest member steps for all. */
static enum outcome step_sync(struct state *s, int t, const struct step *m)
{
    for (int u = 0; u < program.threads; u++) {
        const struct step *other = &program.step[u][s->thread[u].pc];
        if (has(m->count, u) && (other->kind != STEP_SYNC || other->arg != m->arg || u < t))
            return BLOCKED;
    }
    for (int u = 0; u < program.threads; u++)
        if (has(m->count, u) && u != t)
            s->thread[u].pc++;
    DESCRIBE("grid sync %d", m->arg);
    return DONE;
}

static enum outcome step_kernel_end(struct state *s, int t, const struct step *m)
{
    for (int e = 0; e < program.entries; e++)
        if (program.entry[e].thread == t && s->unseen[e])
            return BLOCKED;
    DESCRIBE("%c: the kernel ends", WHO(t));
    return direct_stores_arrive(s, m->mask);
}

static enum outcome step_host_wait(struct state *s, int t, const struct step *m)
{
    if (!proxy_host_answered(s))
        return BLOCKED;
    memset(s->host_phase, HOST_IDLE, sizeof s->host_phase);
    DESCRIBE("%c: the host's quiet returns", WHO(t));
    if (m->mask & ~s->arrived)
        return violated("(2) TOO EARLY: the host's quiet returned before %s", wire_names(m->mask & ~s->arrived));
    return DONE;
}

static enum outcome step_run(struct state *s, int t, const struct step *m)
{
    switch (m->kind) {
    case STEP_RELEASE:
        return step_release(s, t, m);
    case STEP_READ_HEADS:
        return step_read_heads(s, t, m);
    case STEP_WAIT_TAKEN:
        return step_wait_taken(s, t);
    case STEP_SLOT:
        return step_slot(s, t, m);
    case STEP_TICKET:
        return step_ticket(s, t, m);
    case STEP_STORE:
        return step_store(s, t, m);
    case STEP_WAIT_REPLY:
    case STEP_WAIT_SOURCE:
        return step_wait_reply(s, t, m);
    case STEP_SYNC:
        return step_sync(s, t, m);
    case STEP_DIRECT:
        s->stored |= bit(m->arg);
        DESCRIBE("%c: direct store %s is issued", WHO(t), program.wire[m->arg].name);
        return DONE;
    case STEP_KERNEL_END:
        return step_kernel_end(s, t, m);
    case STEP_HOST_ASK:
        proxy_host_ask(s);
        DESCRIBE("%c: the host asks for quiet", WHO(t));
        return DONE;
    case STEP_HOST_WAIT:
        return step_host_wait(s, t, m);
    default:
        return BLOCKED;
    }
}

enum outcome gpu_thread_step(struct state *s, int t)
{
    enum outcome o = step_run(s, t, &program.step[t][s->thread[t].pc]);
    if (o == DONE)
        s->thread[t].pc++;
    return o;
}

bool gpu_step_is_free(const struct state *s, int t)
{
    const struct step *m = &program.step[t][s->thread[t].pc];
    switch (m->kind) {
    case STEP_RELEASE:
        return !(s->stored & m->mask);
    case STEP_WAIT_TAKEN:
        return heads_taken(s, t);
    case STEP_STORE: /* the host's quiet sees whether a visible entry is there */
        return space(s, &program.entry[m->arg], s->thread[t].ticket) && (!program.host || (config->detail & HALVES));
    default:
        return m->kind == STEP_DIRECT;
    }
}
