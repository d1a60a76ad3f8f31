/* singleton.c - the bootstrap of one PE without a launcher. */
#include <stdlib.h>

#include "host/rt.h"

static tern_status_t singleton_open(struct tern_rt *rt, const tern_init_attr_t *attr)
{
    (void)attr;
    rt->pe = 0;
    rt->n_pes = 1;
    return TERN_OK;
}

static tern_status_t singleton_exchange(struct tern_rt *rt, const struct tern_blob *own)
{
    (void)rt;
    (void)own;
    return TERN_OK;
}

static tern_status_t singleton_get(struct tern_rt *rt, int pe, struct tern_blob *out)
{
    (void)pe;
    *out = rt->blob;
    return TERN_OK;
}

static tern_status_t singleton_local(struct tern_rt *rt, int **pes, int *count)
{
    (void)rt;
    *pes = calloc(1, sizeof **pes);
    if (!*pes)
        return tern_error(TERN_ERR_NO_MEMORY, "no memory for the list of PEs; free some");
    *count = 1;
    return TERN_OK;
}

static void singleton_close(struct tern_rt *rt)
{
    (void)rt;
}

const struct tern_bootstrap tern_bootstrap_singleton = {
    .name = "singleton",
    .open = singleton_open,
    .exchange = singleton_exchange,
    .get = singleton_get,
    .local = singleton_local,
    .close = singleton_close,
};
