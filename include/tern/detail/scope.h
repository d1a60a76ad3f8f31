/*
 * tern/detail/scope.h - the threads that make one call together: the calling thread, its warp or its block. A scope is a
 * constant of the calling code, so all of this folds. Barriers here are called through the names of order.h.
 */
#ifndef TERN_DETAIL_SCOPE_H
#define TERN_DETAIL_SCOPE_H

#include <tern/types.h>

enum { TERN_SCOPE_THREAD, TERN_SCOPE_WARP, TERN_SCOPE_BLOCK };

TERN_DEV unsigned tern_block_threads(void)
{
    return blockDim.x * blockDim.y * blockDim.z;
}

TERN_DEV unsigned tern_block_rank(void)
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

/* Threads of the calling thread's warp: fewer than 32 at the end of a block of odd size. */
TERN_DEV unsigned tern_warp_threads(void)
{
    unsigned left = tern_block_threads() - (tern_block_rank() & ~31u);
    return left < 32 ? left : 32;
}

TERN_DEV unsigned tern_warp_mask(void)
{
    return 0xffffffffu >> (32 - tern_warp_threads());
}

TERN_DEV unsigned tern_scope_rank(int scope)
{
    if (scope == TERN_SCOPE_THREAD)
        return 0;
    return scope == TERN_SCOPE_WARP ? tern_block_rank() & 31u : tern_block_rank();
}

TERN_DEV unsigned tern_scope_threads(int scope)
{
    if (scope == TERN_SCOPE_THREAD)
        return 1;
    return scope == TERN_SCOPE_WARP ? tern_warp_threads() : tern_block_threads();
}

TERN_DEV void tern_scope_sync(int scope)
{
    if (scope == TERN_SCOPE_WARP)
        __syncwarp(tern_warp_mask());
    else if (scope == TERN_SCOPE_BLOCK)
        __syncthreads();
}

/* A barrier of the scope, which tells every thread of it whether `any` is set in one of them. */
TERN_DEV bool tern_scope_any(int scope, bool any)
{
    if (scope == TERN_SCOPE_WARP) {
        __syncwarp(tern_warp_mask());
        return __any_sync(tern_warp_mask(), any);
    }
    return scope == TERN_SCOPE_BLOCK ? __syncthreads_or(any) : any;
}

/* Which failure, of those that threads of the scope have. */
TERN_DEV_SLOW tern_status_t tern_scope_failure(int scope, tern_status_t status)
{
    if (tern_scope_any(scope, status == TERN_ERR_TIMEOUT))
        return TERN_ERR_TIMEOUT;
    if (tern_scope_any(scope, status == TERN_ERR_INVALID))
        return TERN_ERR_INVALID;
    if (tern_scope_any(scope, status == TERN_ERR_TRANSPORT))
        return TERN_ERR_TRANSPORT;
    return tern_scope_any(scope, status == TERN_ERR_PEER_DEAD) ? TERN_ERR_PEER_DEAD : TERN_ERR_ABORTED;
}

/* A barrier of the scope after which all its threads have one status: a failure, if any thread has one. */
TERN_DEV tern_status_t tern_scope_status(int scope, tern_status_t status)
{
    if (scope == TERN_SCOPE_THREAD || !tern_scope_any(scope, status != TERN_OK))
        return scope == TERN_SCOPE_THREAD ? status : TERN_OK;
    return tern_scope_failure(scope, status);
}

#endif
