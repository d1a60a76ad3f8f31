/* fake.c - control plane, device and proxy of fake.h. */
#include "fake.h"
#include "proxy/proxy.h"
#include "proxy/proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t fake_granularity = 65536, fake_internal_span = (uint64_t)256 << 20, fake_heap_limit = (uint64_t)64 << 20;
uint64_t fake_reserve_limit, fake_chunk_limit;
int fake_nodes = 1;
struct tern_rt *tern_rt_current;

static _Atomic int alive;
static _Thread_local enum fake_op armed_op;
static _Thread_local int armed_after;
static _Thread_local tern_status_t armed_status;
static _Thread_local bool armed, failed;
static _Thread_local int published;

static void fatal(const char *text)
{
    fprintf(stderr, "fake: %s\n", text);
    exit(1);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

void fake_fail(enum fake_op op, int after, tern_status_t status)
{
    armed = true;
    failed = false;
    armed_op = op;
    armed_after = after;
    armed_status = status;
}

bool fake_heal(void)
{
    bool was = failed;

    armed = failed = false;
    return was;
}

static tern_status_t fault(enum fake_op op)
{
    if (!armed || op != armed_op || armed_after-- > 0)
        return TERN_OK;
    armed = false;
    failed = true;
    return tern_error(armed_status, "fault of operation %d", (int)op);
}

int fake_alive(void)
{
    return atomic_load(&alive);
}

int fake_published(void)
{
    return published;
}

/* ---- control plane ----------------------------------------------------------------------------------------------- */

/* One meeting per group id: arrivals are collected, the last one lets all go. */
struct meeting {
    int arrived, left;
    size_t bytes;
    char *data; /* [members][bytes] */
};

struct fd_item {
    struct fd_item *next;
    int from, to, count;
    uint64_t tag;
    int fds[64];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static struct meeting meetings[256];
static struct fd_item *items;

tern_status_t tern_control_allgather(struct tern_rt *rt, const struct tern_group *group, const void *in, size_t bytes,
                                     void *out)
{
    struct meeting *m = &meetings[group ? group->id : 0];
    int members = group ? group->count : rt->n_pes, index = 0;

    while (group && group->pes[index] != rt->pe)
        index++;
    if (!group)
        index = rt->pe;
    pthread_mutex_lock(&lock);
    while (m->left > 0) /* the last meeting is not over */
        pthread_cond_wait(&cond, &lock);
    if (m->arrived == 0) {
        m->bytes = bytes;
        m->data = calloc((size_t)members, bytes);
    }
    if (m->bytes != bytes)
        fatal("different control calls meet");
    memcpy(m->data + (size_t)index * bytes, in, bytes);
    if (++m->arrived == members) {
        m->left = members;
        pthread_cond_broadcast(&cond);
    }
    while (m->left == 0)
        pthread_cond_wait(&cond, &lock);
    memcpy(out, m->data, (size_t)members * bytes);
    if (--m->left == 0) {
        free(m->data);
        m->arrived = 0;
        pthread_cond_broadcast(&cond);
    }
    pthread_mutex_unlock(&lock);
    return TERN_OK;
}

tern_status_t tern_control_allreduce(struct tern_rt *rt, const struct tern_group *group, uint64_t *words, int count,
                                     const enum tern_reduce *ops)
{
    int members = group ? group->count : rt->n_pes;
    uint64_t all[FAKE_MAX_PES * 8];
    tern_status_t status = tern_control_allgather(rt, group, words, sizeof(*words) * (size_t)count, all);

    for (int w = 0; w < count; w++) {
        words[w] = all[w];
        for (int i = 1; i < members; i++) {
            uint64_t x = all[i * count + w];

            if (ops[w] == TERN_REDUCE_MIN ? x < words[w] : x > words[w])
                words[w] = x;
        }
    }
    return status;
}

tern_status_t tern_control_fd_send(struct tern_rt *rt, int pe, uint64_t tag, const int *fds, int count)
{
    struct fd_item *item = calloc(1, sizeof(*item)), **tail = &items;

    if (!item || count < 1 || count > 64)
        fatal("fd_send");
    item->from = rt->pe, item->to = pe, item->tag = tag, item->count = count;
    for (int i = 0; i < count; i++)
        item->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
    atomic_fetch_add(&alive, count);
    pthread_mutex_lock(&lock);
    while (*tail)
        tail = &(*tail)->next;
    *tail = item;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
    return TERN_OK;
}

tern_status_t tern_control_fd_recv(struct tern_rt *rt, int pe, uint64_t tag, int *fds, int count)
{
    struct fd_item **p, *item;

    pthread_mutex_lock(&lock);
    for (;;) {
        for (p = &items; *p && ((*p)->from != pe || (*p)->to != rt->pe || (*p)->tag != tag);)
            p = &(*p)->next;
        if (*p)
            break;
        pthread_cond_wait(&cond, &lock);
    }
    item = *p;
    *p = item->next;
    pthread_mutex_unlock(&lock);
    if (item->count != count)
        fatal("sender and receiver disagree on the number of descriptors");
    memcpy(fds, item->fds, sizeof(*fds) * (size_t)count);
    atomic_fetch_sub(&alive, count);
    free(item);
    return TERN_OK;
}

void tern_control_abort(struct tern_rt *rt, tern_status_t status, int pe, const char *format, ...)
{
    (void)rt, (void)status, (void)pe, (void)format;
    fatal("job abort");
}

const struct tern_blob *tern_control_blob(struct tern_rt *rt, int pe)
{
    (void)rt, (void)pe;
    return NULL;
}

bool tern_blob_same_node(const struct tern_blob *a, const struct tern_blob *b, const char **why)
{
    (void)a, (void)b, (void)why;
    return true;
}

tern_status_t tern_state_publish(struct tern_rt *rt)
{
    (void)rt;
    published++;
    return TERN_OK;
}

struct tern_rt *tern_rt_enter(const char *call, tern_status_t *status)
{
    *status = tern_error(TERN_ERR_STATE, "%s: there is no runtime in this test", call);
    return NULL;
}

/* ---- device ------------------------------------------------------------------------------------------------------ */

uint64_t tern_device_granularity(struct tern_rt *rt)
{
    (void)rt;
    return fake_granularity;
}

uint64_t tern_device_heap_limit(struct tern_rt *rt)
{
    (void)rt;
    return fake_heap_limit;
}

uint64_t tern_device_internal_span(struct tern_rt *rt)
{
    (void)rt;
    return fake_internal_span;
}

void tern_device_peer(struct tern_rt *rt, const struct tern_device_id *peer, bool *load_store, bool *atomics,
                      const char **why)
{
    (void)rt, (void)peer;
    *load_store = *atomics = true;
    *why = "thread of this process";
}

static tern_status_t map_nothing(void *addr, uint64_t bytes, void **base)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (addr ? MAP_FIXED : 0);

    *base = mmap(addr, bytes, PROT_NONE, flags, -1, 0);
    return *base == MAP_FAILED ? tern_error(TERN_ERR_NO_MEMORY, "mmap: %s", strerror(errno)) : TERN_OK;
}

tern_status_t tern_device_reserve(struct tern_rt *rt, uint64_t bytes, void **base)
{
    tern_status_t status = fault(FAKE_RESERVE);

    if (status == TERN_OK && fake_reserve_limit && bytes > fake_reserve_limit && rt->pe == rt->n_pes - 1)
        status = tern_error(TERN_ERR_NO_MEMORY, "%llu bytes of address space are too many", (unsigned long long)bytes);
    if (status == TERN_OK)
        status = map_nothing(NULL, bytes, base);
    atomic_fetch_add(&alive, status == TERN_OK);
    return status;
}

void tern_device_unreserve(struct tern_rt *rt, void *base, uint64_t bytes)
{
    (void)rt;
    munmap(base, bytes);
    atomic_fetch_sub(&alive, 1);
}

tern_status_t tern_device_chunk_create(struct tern_rt *rt, uint64_t bytes, struct tern_chunk *chunk)
{
    tern_status_t status = fault(FAKE_CREATE);
    int fd;

    if (status == TERN_OK && fake_chunk_limit && bytes > fake_chunk_limit && rt->pe == rt->n_pes - 1)
        status = tern_error(TERN_ERR_NO_MEMORY, "%llu bytes are too many", (unsigned long long)bytes);
    if (status != TERN_OK)
        return status;
    if (bytes == 0 || bytes % fake_granularity)
        fatal("chunk is not a multiple of the granularity");
    fd = memfd_create("fake", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        fatal("memfd");
    *chunk = (struct tern_chunk){.bytes = bytes, .handle = (uint64_t)fd};
    atomic_fetch_add(&alive, 1);
    return TERN_OK;
}

tern_status_t tern_device_chunk_export(struct tern_rt *rt, const struct tern_chunk *chunk, int *fd)
{
    tern_status_t status = fault(FAKE_EXPORT);

    (void)rt;
    if (status == TERN_OK)
        *fd = fcntl((int)chunk->handle, F_DUPFD_CLOEXEC, 0);
    return status;
}

tern_status_t tern_device_chunk_import(struct tern_rt *rt, int fd, uint64_t bytes, struct tern_chunk *chunk)
{
    tern_status_t status = fault(FAKE_IMPORT);

    (void)rt;
    if (status != TERN_OK)
        return status;
    *chunk = (struct tern_chunk){.bytes = bytes, .handle = (uint64_t)fcntl(fd, F_DUPFD_CLOEXEC, 0), .imported = true};
    atomic_fetch_add(&alive, 1);
    return TERN_OK;
}

tern_status_t tern_device_chunk_map(struct tern_rt *rt, const struct tern_chunk *chunk, void *addr)
{
    tern_status_t status = fault(FAKE_MAP);

    (void)rt;
    if (status != TERN_OK)
        return status;
    if (mmap(addr, chunk->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)chunk->handle, 0) != addr)
        fatal("mmap of a chunk");
    atomic_fetch_add(&alive, 1);
    return TERN_OK;
}

void tern_device_chunk_unmap(struct tern_rt *rt, const struct tern_chunk *chunk, void *addr)
{
    void *base;

    (void)rt;
    map_nothing(addr, chunk->bytes, &base);
    atomic_fetch_sub(&alive, 1);
}

void tern_device_chunk_destroy(struct tern_rt *rt, struct tern_chunk *chunk)
{
    (void)rt;
    close((int)chunk->handle);
    atomic_fetch_sub(&alive, 1);
}

tern_status_t tern_device_alloc(struct tern_rt *rt, uint64_t bytes, void **dev)
{
    tern_status_t status = fault(FAKE_ALLOC);

    (void)rt;
    if (status == TERN_OK) {
        *dev = calloc(1, bytes);
        atomic_fetch_add(&alive, 1);
    }
    return status;
}

void tern_device_free(struct tern_rt *rt, void *dev)
{
    (void)rt;
    free(dev);
    atomic_fetch_sub(&alive, 1);
}

tern_status_t tern_device_write(struct tern_rt *rt, void *dev, const void *host, uint64_t bytes)
{
    (void)rt;
    memcpy(dev, host, bytes);
    return TERN_OK;
}

tern_status_t tern_device_zero(struct tern_rt *rt, void *dev, uint64_t bytes)
{
    tern_status_t status = fault(FAKE_ZERO);

    (void)rt;
    if (status == TERN_OK)
        memset(dev, 0, bytes);
    return status;
}

/* ---- proxy ------------------------------------------------------------------------------------------------------- */

/* A key is the chunk as its owner sees it. */
struct key {
    int pe, number;
    uint64_t offset, bytes;
};

static struct key keyed[FAKE_MAX_PES][FAKE_MAX_PES][TERN_NET_CHUNKS]; /* of PE, at PE; bytes 0: none */

static void key_set(struct tern_rt *rt, int pe, const struct tern_net_chunk *chunk, bool add)
{
    struct key *key = &keyed[pe][rt->pe][chunk->number];

    if (chunk->number < 0 || chunk->number >= TERN_NET_CHUNKS || add == (key->bytes != 0))
        fatal("a chunk comes twice, or goes without having come");
    if (!add && (key->offset != chunk->offset || key->bytes != chunk->bytes))
        fatal("another chunk goes than had come");
    *key = (struct key){pe, chunk->number, chunk->offset, add ? chunk->bytes : 0};
    atomic_fetch_add(&alive, add ? 1 : -1);
}

/* Registered memory is mapped from before until afterwards. */
static void touch(struct tern_rt *rt, const struct tern_net_chunk *chunk)
{
    volatile char *at = chunk->addr;

    if (chunk->addr != rt->span + chunk->offset)
        fatal("a chunk is not where its offset says");
    at[0] = at[0];
    at[chunk->bytes - 1] = at[chunk->bytes - 1];
}

tern_status_t tern_proxy_chunk_add(struct tern_rt *rt, const struct tern_net_chunk *chunk, struct tern_net_key *key)
{
    struct key made = {rt->pe, chunk->number, chunk->offset, chunk->bytes};
    tern_status_t status = fault(FAKE_REGISTER);

    if (status != TERN_OK)
        return status;
    touch(rt, chunk);
    key_set(rt, rt->pe, chunk, true);
    key->bytes = sizeof(made);
    memcpy(key->data, &made, sizeof(made));
    return TERN_OK;
}

void tern_proxy_chunk_drop(struct tern_rt *rt, const struct tern_net_chunk *chunk)
{
    touch(rt, chunk);
    key_set(rt, rt->pe, chunk, false);
}

tern_status_t tern_proxy_peer_chunk_add(struct tern_rt *rt, int pe, const struct tern_net_chunk *chunk,
                                        const struct tern_net_key *key)
{
    struct key made = {pe, chunk->number, chunk->offset, chunk->bytes};
    tern_status_t status = fault(FAKE_KEY);

    if (status != TERN_OK)
        return status;
    if (rt->peers[pe].near || key->bytes != sizeof(made) || memcmp(key->data, &made, sizeof(made)) != 0)
        fatal("the key of another chunk");
    key_set(rt, pe, chunk, true);
    return TERN_OK;
}

void tern_proxy_peer_chunk_drop(struct tern_rt *rt, int pe, const struct tern_net_chunk *chunk)
{
    key_set(rt, pe, chunk, false);
}

uint64_t fake_keyed(struct tern_rt *rt, int pe, bool user)
{
    uint64_t bytes = 0;

    for (int number = 0; number < TERN_NET_CHUNKS; number++) {
        const struct key *key = &keyed[pe][rt->pe][number];

        if (key->bytes && (key->offset >= fake_internal_span) == user)
            bytes += key->bytes;
    }
    return bytes;
}

/* ---- PEs --------------------------------------------------------------------------------------------------------- */

struct thread {
    pthread_t id;
    struct tern_rt rt;
    void (*body)(struct tern_rt *rt, void *arg);
    void *arg;
};

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    struct tern_rt *rt = &t->rt;

    rt->peers = calloc((size_t)rt->n_pes, sizeof(*rt->peers));
    rt->near_count = 0;
    for (int p = 0, slot = 0; p < rt->n_pes; p++) {
        bool node = !fake_nodes || p % fake_nodes == rt->pe % fake_nodes, near = node && (fake_nodes || p == rt->pe);

        rt->peers[p] = (struct tern_peer){.same_node = node,
                                          .near = near,
                                          .mapped = node,
                                          .atomics = near,
                                          .slot = node ? (uint8_t)slot++ : TERN_SLOT_NONE};
        rt->near_count += near;
    }
    rt->proxy = fake_nodes == 1 ? NULL : (void *)rt->peers; /* only whether it is there matters, */
    rt->state_dev = (void *)rt->peers;                      /* here, too */
    published = 0;
    t->body(rt, t->arg);
    free(rt->peers);
    return NULL;
}

void fake_run(int n, void (*body)(struct tern_rt *rt, void *arg), void *arg)
{
    struct thread *threads = calloc((size_t)n, sizeof(*threads));

    for (int p = 0; p < n; p++) {
        threads[p].rt.pe = p;
        threads[p].rt.n_pes = n;
        threads[p].body = body;
        threads[p].arg = arg;
        if (pthread_create(&threads[p].id, NULL, thread_main, &threads[p]) != 0)
            fatal("thread");
    }
    for (int p = 0; p < n; p++)
        pthread_join(threads[p].id, NULL);
    free(threads);
}
