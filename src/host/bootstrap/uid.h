/* uid.h - the unique id's contents and what PEs and the maker's thread say to each other. */
#ifndef TERN_HOST_UID_H
#define TERN_HOST_UID_H

#include <stdio.h>

#include "host/bootstrap/bootstrap.h"
#include "host/net.h"

#define TERN_UID_MAGIC 0x31646975u
#define TERN_UID_ADDRESSES 5
#define TERN_UID_GRACE_MS 1000 /* PEs wait this much longer than the maker, whose answer tells who has not come */

/* Inside tern_unique_id_t. */
struct tern_uid {
    uint32_t magic;
    uint16_t port, addresses;
    unsigned char token[16];
    uint64_t boot, netns;
    struct tern_addr addr[TERN_UID_ADDRESSES];
};
_Static_assert(sizeof(struct tern_uid) <= sizeof(tern_unique_id_t), "fits into the public type");

/* PE -> maker, first; then its blob. */
struct tern_uid_hello {
    uint32_t magic, blob_bytes;
    unsigned char token[16];
    int32_t pe, n_pes;
    struct tern_place place;
};

/* Maker -> PE, after each: a table of one record per PE, or (status not 0) a sentence. */
struct tern_uid_answer {
    int32_t status;
    uint32_t bytes;
};

#endif
