/*
 * verbs.c - the verbs transport's life: device and port, completion queues, registered memory and keys. Queue pairs are
 * made in verbs_conn.c, the data path is in verbs_post.c.
 */
#include "proxy/verbs.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/backend.h"
#include "host/log.h"

#define CQ_MOST 4096 /* signaled requests of a thread */
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static tern_status_t failed(const struct verbs_net *net, const char *what)
{
    return tern_error(TERN_ERR_TRANSPORT, "verbs: %s of %s: %s", what, net->nic.device, strerror(errno));
}

static bool reaches(struct tern_rt *rt, int pe, const char **why)
{
    const char *missing = verbs_load();
    char pci[TERN_PCI_BYTES];
    (void)pe;
    if (missing) {
        *why = missing;
        return false;
    }
    if (!tern_device_rdma(rt, pci, why))
        return false;
    if (!rt->env.nic[0] && !tern_nic_any(rt->env.sysfs_root, why))
        return false;
    *why = "RDMA"; /* what TERN_NIC names is looked at in open(), where it can be told */
    return true;
}

/* ---- device ------------------------------------------------------------------------------------------------------ */

static tern_status_t choose(struct tern_rt *rt, struct tern_nic *nic)
{
    char pci[TERN_PCI_BYTES], link[512], near[512] = "", *real, *root;
    unsigned cpu = 0, node = 0;
    const char *sysfs = rt->env.sysfs_root[0] ? rt->env.sysfs_root : "/sys", *why;
    struct tern_nic_query query = {rt->env.sysfs_root, rt->env.nic, (int)rt->env.gid_index, near, -1, rt->node_pe};

    if (!tern_device_rdma(rt, pci, &why))
        return tern_error(TERN_ERR_UNREACHABLE, "verbs: %s; use another TERN_TRANSPORT", why);
    snprintf(link, sizeof link, "%s/bus/pci/devices/%s", sysfs, pci);
    real = pci[0] ? realpath(link, NULL) : NULL;
    root = realpath(sysfs, NULL);
    if (real && root && strncmp(real, root, strlen(root)) == 0)
        snprintf(near, sizeof near, "%s", real + strlen(root) + 1);
    free(real);
    free(root);
    if (getcpu(&cpu, &node) == 0)
        query.numa = (int)node;
    return tern_nic_choose(&query, nic);
}

static tern_status_t device_open(struct verbs_net *net)
{
    int count = 0;
    struct ibv_device **list = verbs.ibv_get_device_list(&count);

    if (!list)
        return failed(net, "list of devices");
    errno = ENODEV;
    for (int i = 0; i < count; i++) {
        if (strcmp(verbs.ibv_get_device_name(list[i]), net->nic.device) == 0)
            net->context = verbs.ibv_open_device(list[i]);
    }
    verbs.ibv_free_device_list(list);
    if (!net->context)
        return tern_error(TERN_ERR_TRANSPORT,
                          "verbs: cannot open %s: %s; is its provider (ibverbs-providers) installed, and "
                          "/dev/infiniband there for this user?",
                          net->nic.device, strerror(errno));
    net->pd = verbs.ibv_alloc_pd(net->context);
    return net->pd ? TERN_OK : failed(net, "protection domain");
}

static tern_status_t port_query(struct tern_proxy *px, struct verbs_net *net, int *cqe)
{
    struct ibv_port_attr port;
    struct ibv_device_attr device;
    union ibv_gid gid;

    memset(&port, 0, sizeof port);
    if (verbs.ibv_query_device(net->context, &device) != 0)
        return failed(net, "query");
    if (verbs.ibv_query_port(net->context, (uint8_t)net->nic.port, (struct _compat_ibv_port_attr *)&port) != 0)
        return failed(net, "query of the port");
    if (verbs.ibv_query_gid(net->context, (uint8_t)net->nic.port, net->nic.gid_index, &gid) != 0)
        return failed(net, "query of the GID");
    if (device.atomic_cap == IBV_ATOMIC_NONE)
        px->caps &= ~TERN_NET_AMO64;
    net->address = (struct verbs_address){.lid = port.lid,
                                          .mtu = (uint8_t)port.active_mtu,
                                          .ethernet = net->nic.ethernet,
                                          .gid_index = (uint32_t)net->nic.gid_index};
    memcpy(net->address.gid, gid.raw, sizeof gid.raw);
    net->most_bytes = port.max_msg_sz && port.max_msg_sz < 1u << 30 ? port.max_msg_sz : 1u << 30;
    net->depth = verbs_depth(px->rt->n_pes);
    while (net->depth > (uint32_t)device.max_qp_wr)
        net->depth /= 2;
    net->reads = VERBS_READS;
    if (device.max_qp_rd_atom > 0 && (uint32_t)device.max_qp_rd_atom < net->reads)
        net->reads = (uint32_t)device.max_qp_rd_atom;
    *cqe = device.max_cqe < CQ_MOST ? device.max_cqe : CQ_MOST;
    return TERN_OK;
}

static tern_status_t thread_open(struct tern_proxy_thread *t, struct verbs_net *net, int cqe)
{
    struct verbs_thread *vt = &net->threads[t->index];
    size_t count = t->dest_count ? (size_t)t->dest_count : 1, bytes = (VERBS_OWN + 1) * sizeof(uint64_t);

    t->net = vt;
    vt->dests = calloc(count, sizeof *vt->dests);
    vt->results = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    if (!vt->dests || !vt->results)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for %zu queue pairs", count);
    for (int i = 0; i < t->dest_count; i++) {
        vt->dests[i].t = t;
        vt->dests[i].dest = &t->dests[i];
    }
    for (uint32_t i = 0; i < VERBS_RESULTS; i++)
        vt->free_slots[vt->free_count++] = (uint16_t)(VERBS_RESULTS - i); /* slot + 1 */
    vt->signals_most = (uint32_t)cqe / 2; /* what a broken queue pair leaves needs room, too */
    vt->cq = verbs.ibv_create_cq(net->context, cqe, NULL, NULL, 0);
    if (!vt->cq)
        return failed(net, "completion queue");
    vt->results_mr = verbs.ibv_reg_mr(net->pd, vt->results, bytes, IBV_ACCESS_LOCAL_WRITE);
    return vt->results_mr ? TERN_OK : failed(net, "registration of host memory");
}

static void thread_close(struct tern_proxy_thread *t, struct verbs_thread *vt)
{
    for (int i = 0; vt->dests && i < t->dest_count; i++) {
        verbs_disconnect(&vt->dests[i]);
        free(vt->dests[i].requests);
    }
    if (vt->self)
        verbs.ibv_destroy_qp(vt->self);
    if (vt->self_cq)
        verbs.ibv_destroy_cq(vt->self_cq);
    if (vt->cq)
        verbs.ibv_destroy_cq(vt->cq);
    if (vt->results_mr)
        verbs.ibv_dereg_mr(vt->results_mr);
    free(vt->results);
    free(vt->dests);
}

static void chunk_free(struct verbs_peer *peer, int number)
{
    free(atomic_exchange(&peer->chunks[number], NULL));
}

static void close_all(struct tern_proxy *px)
{
    struct verbs_net *net = px->net;

    if (!net)
        return;
    for (int i = 0; net->threads && i < px->threads; i++)
        thread_close(&px->thread[i], &net->threads[i]);
    if (net->pd)
        verbs.ibv_dealloc_pd(net->pd);
    if (net->context)
        verbs.ibv_close_device(net->context);
    for (int c = 0; c < TERN_NET_CHUNKS; c++) {
        for (int pe = 0; net->peers && pe < px->rt->n_pes; pe++)
            chunk_free(&net->peers[pe], c);
        chunk_free(&net->own, c);
    }
    free(net->peers);
    free(net->threads);
    free(net);
    px->net = NULL;
}

static tern_status_t net_open(struct tern_proxy *px, struct verbs_net *net)
{
    int cqe;
    tern_status_t status = choose(px->rt, &net->nic);

    if (status == TERN_OK)
        status = device_open(net);
    if (status == TERN_OK)
        status = port_query(px, net, &cqe);
    for (int i = 0; i < px->threads && status == TERN_OK; i++)
        status = thread_open(&px->thread[i], net, cqe);
    for (int i = 0; i < px->threads && status == TERN_OK; i++)
        status = verbs_self_open(&px->thread[i]);
    if (status == TERN_OK)
        tern_log(TERN_LOG_INFO, "verbs: %s port %d, GID %d (%s)", net->nic.device, net->nic.port, net->nic.gid_index,
                 net->nic.why);
    return status;
}

static tern_status_t open_all(struct tern_proxy *px)
{
    const char *missing = verbs_load();
    struct verbs_net *net;
    tern_status_t status;

    if (missing)
        return tern_error(TERN_ERR_UNREACHABLE, "%s; install rdma-core or name another TERN_TRANSPORT", missing);
    px->net = net = calloc(1, sizeof *net);
    if (!net)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the verbs transport");
    net->threads = calloc((size_t)px->threads, sizeof *net->threads);
    net->peers = calloc((size_t)px->rt->n_pes, sizeof *net->peers);
    status = net->threads && net->peers ? net_open(px, net)
                                        : tern_error(TERN_ERR_NO_MEMORY, "no host memory for the verbs transport");
    if (status != TERN_OK)
        close_all(px);
    return status;
}

static tern_status_t address(struct tern_proxy *px, struct tern_net_address *own)
{
    const struct verbs_net *net = px->net;
    own->bytes = sizeof net->address;
    memcpy(own->data, &net->address, sizeof net->address);
    return TERN_OK;
}

static int mtu_bytes(unsigned mtu)
{
    return 128 << mtu;
}

static tern_status_t connect_all(struct tern_proxy *px, const struct tern_net_address *all)
{
    const struct verbs_net *net = px->net;

    for (int pe = 0; pe < px->rt->n_pes; pe++) {
        struct verbs_address it;
        memcpy(&it, all[pe].data, sizeof it);
        if (it.ethernet != net->address.ethernet)
            return tern_error(TERN_ERR_UNREACHABLE,
                              "verbs: %s of PE %d is %s, PE %d's device is not; name devices of one kind by TERN_NIC",
                              net->nic.device, px->rt->pe, net->nic.ethernet ? "Ethernet (RoCE)" : "InfiniBand", pe);
        if (it.mtu != net->address.mtu)
            return tern_error(
                TERN_ERR_UNREACHABLE,
                "verbs: the MTU of %s of PE %d is %d, that of PE %d's device %d; set them equal (ip link set mtu), or "
                "name other devices by TERN_NIC",
                net->nic.device, px->rt->pe, mtu_bytes(net->address.mtu), pe, mtu_bytes(it.mtu));
    }
    return TERN_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* GPU memory by dma-buf, else through the driver's peer memory; host memory as it is. */
static tern_status_t map(struct tern_proxy *px, void *addr, uint64_t bytes, struct ibv_mr **mr)
{
    struct verbs_net *net = px->net;
    int fd = tern_device_dmabuf(px->rt, addr, bytes);

    *mr = NULL;
    if (fd >= 0) {
        *mr = verbs.ibv_reg_dmabuf_mr(net->pd, 0, bytes, (uint64_t)(uintptr_t)addr, fd, ACCESS);
        if (!*mr)
            tern_log(TERN_LOG_INFO, "verbs: %s does not register dma-buf (%s); trying peer memory", net->nic.device,
                     strerror(errno));
        close(fd);
    }
    if (!*mr)
        *mr = verbs.ibv_reg_mr(net->pd, addr, bytes, ACCESS);
    if (*mr)
        return TERN_OK;
    return tern_error(TERN_ERR_TRANSPORT, "verbs: %s cannot register %llu bytes at %p: %s; %s", net->nic.device,
                      (unsigned long long)bytes, addr, strerror(errno),
                      errno == ENOMEM ? "raise the limit of locked memory (ulimit -l unlimited)"
                                      : "GPU memory needs dma-buf support of kernel and driver, or nvidia-peermem");
}

static void unmap(struct ibv_mr **mr)
{
    if (*mr)
        verbs.ibv_dereg_mr(*mr);
    *mr = NULL;
}

static tern_status_t chunk_publish(struct verbs_peer *peer, const struct tern_net_chunk *chunk, uint64_t base,
                                   uint32_t lkey, uint32_t rkey)
{
    struct verbs_chunk *copy = malloc(sizeof *copy);

    if (!copy)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for a key of the heap");
    *copy = (struct verbs_chunk){chunk->offset, chunk->bytes, base, lkey, rkey};
    atomic_store_explicit(&peer->chunks[chunk->number], copy, memory_order_release);
    return TERN_OK;
}

struct key { /* travels */
    uint64_t base;
    uint32_t rkey, pad;
};

static tern_status_t chunk_add(struct tern_proxy *px, const struct tern_net_chunk *chunk, struct tern_net_key *key)
{
    struct verbs_net *net = px->net;
    struct key k = {(uint64_t)(uintptr_t)chunk->addr - chunk->offset, 0, 0};
    struct ibv_mr **mr = &net->chunks[chunk->number];
    tern_status_t status = map(px, chunk->addr, chunk->bytes, mr);

    if (status != TERN_OK)
        return status;
    status = chunk_publish(&net->own, chunk, k.base, (*mr)->lkey, (*mr)->rkey);
    if (status != TERN_OK) {
        unmap(mr);
        return status;
    }
    k.rkey = (*mr)->rkey;
    memcpy(key->data, &k, sizeof k);
    key->bytes = sizeof k;
    return TERN_OK;
}

static void chunk_drop(struct tern_proxy *px, const struct tern_net_chunk *chunk)
{
    struct verbs_net *net = px->net;
    chunk_free(&net->own, chunk->number);
    unmap(&net->chunks[chunk->number]);
}

static tern_status_t peer_chunk_add(struct tern_proxy *px, int pe, const struct tern_net_chunk *chunk,
                                    const struct tern_net_key *key)
{
    struct verbs_net *net = px->net;
    struct key k;

    memcpy(&k, key->data, sizeof k);
    return chunk_publish(&net->peers[pe], chunk, k.base, 0, k.rkey);
}

static void peer_chunk_drop(struct tern_proxy *px, int pe, const struct tern_net_chunk *chunk)
{
    struct verbs_net *net = px->net;
    chunk_free(&net->peers[pe], chunk->number);
}

static tern_status_t buffer_add(struct tern_proxy *px, unsigned segment, void *addr, uint64_t bytes)
{
    struct verbs_net *net = px->net;
    return map(px, addr, bytes, &net->buffers[segment]);
}

static void buffer_drop(struct tern_proxy *px, unsigned segment)
{
    struct verbs_net *net = px->net;
    unmap(&net->buffers[segment]);
}

/* Before the heap's memory goes: nothing may be on its way into it. */
static void thread_stop(struct tern_proxy_thread *t)
{
    struct verbs_thread *vt = t->net;
    for (int i = 0; i < t->dest_count; i++)
        verbs_disconnect(&vt->dests[i]);
}

const struct tern_transport tern_transport_verbs = {
    .name = "verbs",
    .caps = TERN_NET_ORDERED | TERN_NET_AMO64 | TERN_NET_LAZY,
    .reaches = reaches,
    .open = open_all,
    .address = address,
    .connect = connect_all,
    .close = close_all,
    .chunk_add = chunk_add,
    .chunk_drop = chunk_drop,
    .peer_chunk_add = peer_chunk_add,
    .peer_chunk_drop = peer_chunk_drop,
    .buffer_add = buffer_add,
    .buffer_drop = buffer_drop,
    .thread_stop = thread_stop,
    .post = verbs_post,
    .flush = verbs_flush,
    .poll = verbs_poll,
    .dest_fail = verbs_dest_fail,
    .word_load = verbs_word_load,
    .word_store = verbs_word_store,
    .word_swap = verbs_word_swap,
    .message = verbs_message,
};
