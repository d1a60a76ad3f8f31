/*
 * proxy.h - what the host part asks of the proxy: the threads that carry operations of kernels to PEs out of reach of loads
 * and stores. rt->proxy is NULL where the job needs none. Application's thread only, unless said otherwise.
 */
#ifndef TERN_PROXY_PROXY_H
#define TERN_PROXY_PROXY_H

#include "host/rt.h"
#include "proxy/transport.h"

/*
 * After tern_peers_find (which has set rt->peers, rt->amo_direct and rt->needs_proxy): choose the transport, make rings
 * and tables, exchange addresses. Collective; nothing is done where no PE of the job needs a proxy.
 */
tern_status_t tern_proxy_open(struct tern_rt *rt);
/* After the heap is there: start the threads. */
tern_status_t tern_proxy_start(struct tern_rt *rt);
/* Complete what can be completed (bounded; not at all in an aborted job), stop the threads. The heap is still mapped. */
void tern_proxy_stop(struct tern_rt *rt);
/* Release everything else; after the heap has dropped its chunks. */
void tern_proxy_close(struct tern_rt *rt);

/* Fields of a context (tern_ctx_fill), and of the state block's image (tern_state_publish; any thread). */
void tern_proxy_ctx(struct tern_rt *rt, tern_ctx_t *ctx);
void tern_proxy_state(struct tern_rt *rt, struct tern_state_dev *image);

/* All that finished kernels of this PE have pushed is complete at its targets. */
tern_status_t tern_proxy_quiet(struct tern_rt *rt);

/* ---- memory -------------------------------------------------------------------------------------------------------------- */
/* Growth of the heap: register an own chunk and get its key; take a far peer's chunk by its key; undo both. */
tern_status_t tern_proxy_chunk_add(struct tern_rt *rt, const struct tern_net_chunk *chunk, struct tern_net_key *key);
void tern_proxy_chunk_drop(struct tern_rt *rt, const struct tern_net_chunk *chunk);
tern_status_t tern_proxy_peer_chunk_add(struct tern_rt *rt, int pe, const struct tern_net_chunk *chunk,
                                        const struct tern_net_key *key);
void tern_proxy_peer_chunk_drop(struct tern_rt *rt, int pe, const struct tern_net_chunk *chunk);
/* tern_buffer_register and its undoing: local memory outside the heap, as source or destination. */
tern_status_t tern_proxy_buffer_add(struct tern_rt *rt, void *addr, uint64_t bytes);
tern_status_t tern_proxy_buffer_drop(struct tern_rt *rt, void *addr);
/* `bytes` at `addr` may be the local side of a proxied operation: they lie in the heap or in one buffer. */
bool tern_proxy_local_ok(struct tern_rt *rt, const void *addr, uint64_t bytes);

/* ---- called by the control thread, without its lock ------------------------------------------------------------------------ */
/* A message of another PE's proxy (tern_control_message). The body is only lent. */
void tern_proxy_message(struct tern_rt *rt, int from, const void *body, size_t bytes);
void tern_proxy_dead(struct tern_rt *rt, int pe);

/* ---- for people ------------------------------------------------------------------------------------------------------------ */
/* Transport of a far PE and why, static text: for tern_describe. */
const char *tern_proxy_transport(struct tern_rt *rt, int pe, const char **why);
/* Rings, and the last operation and oldest incomplete one of each destination, to the log. Any thread. */
void tern_proxy_dump(struct tern_rt *rt, const char *why);

#endif
