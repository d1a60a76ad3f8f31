/* copier.c - copies of the loopback transport on the CPU device: plain ones. */
#include <string.h>

#include "device/backend.h"

tern_status_t tern_device_copier_open(struct tern_rt *rt, struct tern_copier **copier)
{
    (void)rt;
    *copier = NULL; /* nothing is kept */
    return TERN_OK;
}

void tern_device_copier_close(struct tern_copier *copier)
{
    (void)copier;
}

tern_status_t tern_device_copier_copy(struct tern_copier *copier, void *dst, const void *src, uint64_t bytes)
{
    (void)copier;
    memcpy(dst, src, bytes);
    return TERN_OK;
}

tern_status_t tern_device_copier_store(struct tern_copier *copier, void *dst, uint64_t value, unsigned bytes)
{
    (void)copier;
    if (bytes == 8)
        __atomic_store_n((uint64_t *)dst, value, __ATOMIC_RELEASE);
    else if (bytes == 4)
        __atomic_store_n((uint32_t *)dst, (uint32_t)value, __ATOMIC_RELEASE);
    else if (bytes == 2)
        __atomic_store_n((uint16_t *)dst, (uint16_t)value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint8_t *)dst, (uint8_t)value, __ATOMIC_RELEASE);
    return TERN_OK;
}

tern_status_t tern_device_copier_load(struct tern_copier *copier, const void *src, unsigned bytes, uint64_t *value)
{
    (void)copier;
    if (bytes == 8)
        *value = __atomic_load_n((const uint64_t *)src, __ATOMIC_ACQUIRE);
    else if (bytes == 4)
        *value = __atomic_load_n((const uint32_t *)src, __ATOMIC_ACQUIRE);
    else if (bytes == 2)
        *value = __atomic_load_n((const uint16_t *)src, __ATOMIC_ACQUIRE);
    else
        *value = __atomic_load_n((const uint8_t *)src, __ATOMIC_ACQUIRE);
    return TERN_OK;
}
