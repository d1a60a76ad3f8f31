/* death.h - the kernels of the death test. */
#ifndef TEST_HOST_DEATH_H
#define TEST_HOST_DEATH_H

#include <tern/tern.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One kernel that puts to the next PE and completes it; returns when it has ended. */
tern_status_t death_put(tern_ctx_t ctx, void *dst, const void *src, size_t bytes);
/* One kernel that waits for a signal that never comes; returns when it has ended, with what the wait returned. */
tern_status_t death_wait(tern_ctx_t ctx, uint64_t *sig, int *status);

#ifdef __cplusplus
}
#endif
#endif
