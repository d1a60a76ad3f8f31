/*
 * buffer.c - tern_buffer_register and tern_buffer_unregister: local memory outside the heap as source or destination of
 * operations that go through the proxy. The list is kept without a proxy, too, so that wrong calls fail everywhere.
 */
#include <stdlib.h>
#include <tern/detail/ring.h>

#include "host/range.h"
#include "host/rt.h"
#include "proxy/proxy.h"

struct buffer {
    uintptr_t base;
    size_t bytes;
};

struct tern_buffers {
    pthread_mutex_t lock;
    int count;
    struct buffer list[TERN_MAX_BUFFERS];
};

tern_status_t tern_buffers_open(struct tern_rt *rt)
{
    rt->buffers = calloc(1, sizeof *rt->buffers);
    if (!rt->buffers)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the list of registered buffers; free some");
    pthread_mutex_init(&rt->buffers->lock, NULL);
    return TERN_OK;
}

void tern_buffers_close(struct tern_rt *rt)
{
    struct tern_buffers *buffers = rt->buffers;
    if (!buffers)
        return;
    if (buffers->count)
        tern_log(TERN_LOG_INFO, "%d buffers were not unregistered", buffers->count);
    for (int i = 0; rt->proxy && i < buffers->count; i++)
        tern_proxy_buffer_drop(rt, (void *)buffers->list[i].base);
    pthread_mutex_destroy(&buffers->lock);
    free(buffers);
    rt->buffers = NULL;
}

static bool overlap(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static tern_status_t buffer_check(const struct tern_rt *rt, const void *ptr, size_t bytes)
{
    const struct tern_buffers *buffers = rt->buffers;
    uintptr_t base = (uintptr_t)ptr;

    if (!ptr || !bytes)
        return tern_error(TERN_ERR_INVALID, "tern_buffer_register of %zu bytes at %p: there is nothing to register",
                          bytes, ptr);
    if (base + bytes < base)
        return tern_error(TERN_ERR_INVALID, "tern_buffer_register of %zu bytes at %p goes beyond the address space",
                          bytes, ptr);
    if (overlap(base, bytes, (uintptr_t)rt->span, rt->stride))
        return tern_error(
            TERN_ERR_INVALID,
            "tern_buffer_register of %zu bytes at %p: it is symmetric memory, which needs no registration", bytes, ptr);
    for (int i = 0; i < buffers->count; i++) {
        const struct buffer *other = &buffers->list[i];
        if (overlap(base, bytes, other->base, other->bytes))
            return tern_error(
                TERN_ERR_INVALID,
                "tern_buffer_register of %zu bytes at %p: it overlaps the registered buffer of %zu bytes at "
                "%p; unregister that first, or register both as one",
                bytes, ptr, other->bytes, (void *)other->base);
    }
    if (buffers->count == (int)TERN_MAX_BUFFERS)
        return tern_error(TERN_ERR_NO_MEMORY,
                          "%u buffers are registered, and there can be no more; register larger pieces",
                          TERN_MAX_BUFFERS);
    return TERN_OK;
}

tern_status_t tern_buffer_register(void *ptr, size_t bytes)
{
    TERN_RANGE("tern_buffer_register");
    tern_status_t status;
    struct tern_rt *rt = tern_rt_enter("tern_buffer_register", &status);
    struct tern_buffers *buffers;

    if (!rt)
        return status;
    buffers = rt->buffers;
    pthread_mutex_lock(&buffers->lock);
    status = buffer_check(rt, ptr, bytes);
    if (status == TERN_OK && rt->proxy)
        status = tern_proxy_buffer_add(rt, ptr, bytes);
    if (status == TERN_OK)
        buffers->list[buffers->count++] = (struct buffer){(uintptr_t)ptr, bytes};
    pthread_mutex_unlock(&buffers->lock);
    return status;
}

tern_status_t tern_buffer_unregister(void *ptr)
{
    TERN_RANGE("tern_buffer_unregister");
    tern_status_t status;
    struct tern_rt *rt = tern_rt_enter("tern_buffer_unregister", &status);
    struct tern_buffers *buffers;
    int i = 0;

    if (!rt)
        return status;
    buffers = rt->buffers;
    pthread_mutex_lock(&buffers->lock);
    while (i < buffers->count && (!ptr || buffers->list[i].base != (uintptr_t)ptr))
        i++;
    if (i == buffers->count) {
        status = tern_error(TERN_ERR_INVALID,
                            "tern_buffer_unregister: no registered buffer begins at %p (unregistered twice, or another "
                            "address?)",
                            ptr);
    } else {
        if (rt->proxy)
            status = tern_proxy_buffer_drop(rt, ptr);
        buffers->list[i] = buffers->list[--buffers->count];
    }
    pthread_mutex_unlock(&buffers->lock);
    return status;
}
