/* equal.c - what must be equal on all PEs: library version, ABI, and the variables so marked in env.h. */
#include <stdlib.h>
#include <string.h>

#include "host/rt.h"

#define EQUAL_BYTES 128

/* Values of the variables that must be equal, in the order of the table. */
struct equal_values {
    uint32_t version, abi;
    char value[32][EQUAL_BYTES];
};

static void equal_fill(struct tern_rt *rt, struct equal_values *values)
{
    int n = 0;
    memset(values, 0, sizeof *values);
    values->version = rt->blob.version;
    values->abi = rt->blob.abi;
    for (int i = 0; i < tern_env_count && n < 32; i++) {
        if (tern_env_entries[i].equal)
            tern_env_text(&rt->env, &tern_env_entries[i], values->value[n++], EQUAL_BYTES);
    }
}

/* All PEs look at the same table, hence say the same. */
static tern_status_t difference_tell(const struct equal_values *all, int n_pes)
{
    const struct equal_values *first = &all[0];
    for (int pe = 1; pe < n_pes; pe++) {
        const struct equal_values *other = &all[pe];
        int n = 0;
        if (other->version != first->version || other->abi != first->abi)
            return tern_error(TERN_ERR_VERSION,
                              "PE %d has library version %u.%u.%u (ABI %u), PE 0 has %u.%u.%u (ABI %u); use one "
                              "version on all PEs",
                              pe, other->version / 10000, other->version / 100 % 100, other->version % 100, other->abi,
                              first->version / 10000, first->version / 100 % 100, first->version % 100, first->abi);
        for (int i = 0; i < tern_env_count && n < 32; i++) {
            if (!tern_env_entries[i].equal)
                continue;
            if (memcmp(other->value[n], first->value[n], EQUAL_BYTES))
                return tern_error(TERN_ERR_VERSION, "%s is %.*s on PE %d and %.*s on PE 0; set it alike on all PEs",
                                  tern_env_entries[i].name, EQUAL_BYTES, other->value[n], pe, EQUAL_BYTES,
                                  first->value[n]);
            n++;
        }
    }
    return tern_error(TERN_ERR_VERSION,
                      "the PEs' configurations differ; use one library and the same TERN_* variables on all PEs");
}

tern_status_t tern_equal_check(struct tern_rt *rt)
{
    static const enum tern_reduce ops[] = {TERN_REDUCE_MIN, TERN_REDUCE_MAX, TERN_REDUCE_MIN,
                                           TERN_REDUCE_MAX, TERN_REDUCE_MIN, TERN_REDUCE_MAX};
    uint64_t words[] = {rt->blob.version, rt->blob.version, rt->blob.abi,
                        rt->blob.abi,     rt->blob.config,  rt->blob.config};
    struct equal_values own, *all;
    tern_status_t status = tern_control_allreduce(rt, NULL, words, 6, ops);

    if (status != TERN_OK || (words[0] == words[1] && words[2] == words[3] && words[4] == words[5]))
        return status;
    all = calloc((size_t)rt->n_pes, sizeof *all);
    if (!all) { /* the others must not wait for this PE */
        tern_control_abort(rt, TERN_ERR_NO_MEMORY, rt->pe, "PE %d has no host memory to compare configurations", rt->pe);
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory to compare %d configurations; free some", rt->n_pes);
    }
    equal_fill(rt, &own);
    status = tern_control_allgather(rt, NULL, &own, sizeof own, all);
    if (status == TERN_OK)
        status = difference_tell(all, rt->n_pes);
    free(all);
    return status;
}
