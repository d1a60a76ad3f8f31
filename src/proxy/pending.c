/* pending.c - for as long as the engine is not there: a job that needs a proxy is refused. */
#include "proxy/proxy.h"

static tern_status_t refuse(struct tern_rt *rt)
{
    if (rt->env.atomics == 2)
        return tern_error(TERN_ERR_UNSUPPORTED, "TERN_ATOMICS=proxy: this version has no proxy; unset it or say direct");
    for (int pe = 0; pe < rt->n_pes; pe++) {
        if (!rt->peers[pe].mapped)
            return tern_error(TERN_ERR_UNREACHABLE,
                              "PE %d has no path to PE %d: %s; this version reaches load/store peers only: run all PEs on "
                              "one node, on GPUs with peer access",
                              rt->pe, pe, tern_peer_why(rt, pe));
    }
    return TERN_OK;
}

tern_status_t tern_proxy_open(struct tern_rt *rt)
{
    return rt->needs_proxy ? tern_agree_status(rt, NULL, refuse(rt)) : TERN_OK;
}

tern_status_t tern_proxy_start(struct tern_rt *rt)
{
    (void)rt;
    return TERN_OK;
}

void tern_proxy_stop(struct tern_rt *rt)
{
    (void)rt;
}

void tern_proxy_close(struct tern_rt *rt)
{
    (void)rt;
}

/* Without a proxy nobody calls the others. */
#define ABSENT(type, name, args, result)                                                                               \
    type name args                                                                                                     \
    {                                                                                                                  \
        return result;                                                                                                 \
    }
#define UNUSED __attribute__((unused))
ABSENT(void, tern_proxy_ctx, (UNUSED struct tern_rt *rt, UNUSED tern_ctx_t *ctx), )
ABSENT(void, tern_proxy_state, (UNUSED struct tern_rt *rt, UNUSED struct tern_state_dev *image), )
ABSENT(tern_status_t, tern_proxy_quiet, (UNUSED struct tern_rt *rt), TERN_OK)
ABSENT(tern_status_t, tern_proxy_chunk_add,
       (UNUSED struct tern_rt *rt, UNUSED const struct tern_net_chunk *chunk, UNUSED struct tern_net_key *key), TERN_OK)
ABSENT(void, tern_proxy_chunk_drop, (UNUSED struct tern_rt *rt, UNUSED const struct tern_net_chunk *chunk), )
ABSENT(tern_status_t, tern_proxy_peer_chunk_add,
       (UNUSED struct tern_rt *rt, UNUSED int pe, UNUSED const struct tern_net_chunk *chunk,
        UNUSED const struct tern_net_key *key),
       TERN_OK)
ABSENT(void, tern_proxy_peer_chunk_drop,
       (UNUSED struct tern_rt *rt, UNUSED int pe, UNUSED const struct tern_net_chunk *chunk), )
ABSENT(tern_status_t, tern_proxy_buffer_add, (UNUSED struct tern_rt *rt, UNUSED void *addr, UNUSED uint64_t bytes), TERN_OK)
ABSENT(tern_status_t, tern_proxy_buffer_drop, (UNUSED struct tern_rt *rt, UNUSED void *addr), TERN_OK)
ABSENT(bool, tern_proxy_local_ok, (UNUSED struct tern_rt *rt, UNUSED const void *addr, UNUSED uint64_t bytes), true)
ABSENT(void, tern_proxy_message,
       (UNUSED struct tern_rt *rt, UNUSED int from, UNUSED const void *body, UNUSED size_t bytes), )
ABSENT(void, tern_proxy_dead, (UNUSED struct tern_rt *rt, UNUSED int pe), )
ABSENT(const char *, tern_proxy_transport, (UNUSED struct tern_rt *rt, UNUSED int pe, UNUSED const char **why), NULL)
ABSENT(void, tern_proxy_dump, (UNUSED struct tern_rt *rt, UNUSED const char *why), )
