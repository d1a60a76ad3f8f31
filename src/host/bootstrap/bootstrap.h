/* bootstrap.h - what the bootstraps share. */
#ifndef TERN_HOST_BOOTSTRAP_H
#define TERN_HOST_BOOTSTRAP_H

#include "host/rt.h"

/* Identity of the place a process runs in: equal boot and netns = abstract UNIX sockets and loopback work between them.
 */
struct tern_place {
    uint64_t boot, netns, pidns;
};
void tern_place_own(struct tern_place *place);

/* Fill a new blob with all but what the control plane and the device add. */
tern_status_t tern_blob_fill(struct tern_rt *rt);

/* Random bytes from the kernel. */
tern_status_t tern_random_bytes(void *buf, size_t bytes);

/* Monotonic clock. */
uint64_t tern_now_ns(void);

/*
 * Join the PMIx server: TERN_OK, or TERN_ERR_UNREACHABLE when there is none (no sentence recorded: the caller decides
 * what that means), or another status with a sentence. The connection stays for the life of the process.
 */
tern_status_t tern_pmix_join(void);

#endif
