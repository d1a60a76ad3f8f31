/*
 * agree.c - agreement of collective host calls: that all PEs make the same one, and that a step which may fail on some
 * of them fails on all. Whatever the calls are, the first round is the same control call, so a PE that skipped or
 * changed one meets the others in it, and the next round is in step again.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/rt.h"

#define TEXT_BYTES 88

/* What a PE called; exchanged only when the hashes differ. */
struct call_text {
    char text[TEXT_BYTES];
};

static uint64_t hash_call(const struct call_text *call)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (int i = 0; i < TEXT_BYTES && call->text[i]; i++)
        h = (h ^ (unsigned char)call->text[i]) * 0x100000001b3u;
    return h;
}

/* The call that most PEs made, if more than half did; else that of PE 0. */
static int majority(const struct call_text *calls, int n)
{
    int candidate = 0, votes = 0, count = 0;

    for (int i = 0; i < n; i++) {
        if (votes == 0)
            candidate = i;
        votes += memcmp(&calls[i], &calls[candidate], sizeof(*calls)) ? -1 : 1;
    }
    for (int i = 0; i < n; i++)
        count += !memcmp(&calls[i], &calls[candidate], sizeof(*calls));
    if (count * 2 <= n)
        candidate = 0;
    while (candidate > 0 && !memcmp(&calls[candidate - 1], &calls[candidate], sizeof(*calls)))
        candidate--;
    return candidate;
}

/* All PEs have the same `calls`, hence return the same sentence. */
static tern_status_t mismatch(struct tern_rt *rt, const struct call_text *calls)
{
    int usual = majority(calls, rt->n_pes), same = 0, other = -1;
    char others[32] = "";

    for (int i = 0; i < rt->n_pes; i++) {
        if (!memcmp(&calls[i], &calls[usual], sizeof(*calls)))
            same++;
        else if (other < 0)
            other = i;
    }
    if (same > 1)
        snprintf(others, sizeof(others), " and %d other%s", same - 1, same > 2 ? "s" : "");
    return tern_error(
        TERN_ERR_MISMATCH,
        "collective call %llu: PE %d called %s, PE %d%s called %s; all PEs must make the same collective calls in the "
        "same order. The call had no effect on any PE",
        (unsigned long long)rt->collectives, other, calls[other].text, usual, others, calls[usual].text);
}

tern_status_t tern_agree(struct tern_rt *rt, bool able, const char *format, ...)
{
    static const enum tern_reduce ops[] = {TERN_REDUCE_MIN, TERN_REDUCE_MAX, TERN_REDUCE_MIN};
    struct call_text own, *calls;
    uint64_t words[3];
    tern_status_t status;
    va_list args;

    memset(&own, 0, sizeof(own));
    va_start(args, format);
    vsnprintf(own.text, sizeof(own.text), format, args);
    va_end(args);
    rt->collectives++; /* equal on all PEs: each call is one round of the control plane */

    /* for the case of a difference, so that it is reported whatever the memory then */
    calls = calloc((size_t)rt->n_pes, sizeof(*calls));
    words[0] = words[1] = hash_call(&own);
    words[2] = able && calls ? UINT64_MAX : (uint64_t)rt->pe;
    status = tern_control_allreduce(rt, NULL, words, 3, ops);
    if (status != TERN_OK) {
        /* the control plane has told why */
    } else if (words[2] != UINT64_MAX) {
        status =
            tern_error(TERN_ERR_NO_MEMORY, "PE %d has no host memory left for %s; the call had no effect on any PE",
                       (int)words[2], own.text);
    } else if (words[0] != words[1]) {
        status = tern_control_allgather(rt, NULL, &own, sizeof(own), calls);
        if (status == TERN_OK)
            status = mismatch(rt, calls);
    }
    free(calls);
    return status;
}

/* Lowest failed PE first, then its status. */
#define FAILURE(pe, status) ((uint64_t)(uint32_t)(pe) << 32 | (uint32_t)(status))

tern_status_t tern_agree_status(struct tern_rt *rt, const struct tern_group *group, tern_status_t status)
{
    static const enum tern_reduce op = TERN_REDUCE_MIN;
    uint64_t word = status == TERN_OK ? UINT64_MAX : FAILURE(rt->pe, status);
    int count = group ? group->count : rt->n_pes, index;
    char own[256], *texts;
    tern_status_t got;

    snprintf(own, sizeof(own), "%s", status == TERN_OK ? "" : tern_last_error());
    got = tern_control_allreduce(rt, group, &word, 1, &op);
    if (got != TERN_OK || word == UINT64_MAX)
        return got;

    texts = calloc((size_t)count, sizeof(own));
    if (!texts) /* the others must not wait for this PE */
        tern_control_abort(rt, TERN_ERR_NO_MEMORY, rt->pe, "no host memory left while PEs agreed on a failure");
    got = texts ? tern_control_allgather(rt, group, own, sizeof(own), texts) : TERN_ERR_NO_MEMORY;
    if (got == TERN_OK) {
        got = (tern_status_t)(uint32_t)word;
        for (index = 0; group && group->pes[index] != (int)(word >> 32);)
            index++;
        if (!group)
            index = (int)(word >> 32);
        if ((int)(word >> 32) != rt->pe)
            tern_error(got, "PE %d: %.200s", (int)(word >> 32), texts + (size_t)index * sizeof(own));
    }
    free(texts);
    return got;
}
