/* fake.c - see fake.h. It defines what verbs_lib.c does. */
#include "verbs/fake.h"

#include <errno.h>

#include "common/check.h"

struct fake fake;
struct verbs_lib verbs;

#define QPS 256
#define CQS 16
#define MRS 256
#define DEEP 8192

struct pending { /* posted, its completion not taken yet */
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    uint64_t inline_word;
    bool done; /* has taken effect */
    enum ibv_wc_status status;
};

struct qp {
    struct ibv_qp qp;
    struct pending *queue; /* [DEEP] */
    uint64_t head, tail;
    uint32_t most;
    enum ibv_qp_state state;
    bool alive;
};

static struct qp qps[QPS];
static struct ibv_mr mrs[MRS];
static bool mr_alive[MRS];
static struct ibv_cq cqs[CQS];
static bool cq_alive[CQS];
static struct ibv_context context;
static struct ibv_pd pd;
static struct ibv_device device;
static struct ibv_device *devices[2] = {&device, NULL};

void fake_reset(void)
{
    memset(&fake, 0, sizeof fake);
    fake.fail_at = -1;
    fake.max_msg = 8u << 20;
    fake.max_inline = 64;
    fake.atomics = IBV_ATOMIC_HCA;
    fake.mtu = IBV_MTU_4096;
}

/* ---- memory --------------------------------------------------------------------------------------------------------
 */

static struct ibv_mr *reg_mr(struct ibv_pd *of, void *addr, size_t bytes, int access)
{
    (void)access;
    if (fake.reg_error) {
        errno = fake.reg_error;
        return NULL;
    }
    for (int i = 0; i < MRS; i++) {
        if (mr_alive[i])
            continue;
        mr_alive[i] = true;
        fake.mrs++;
        mrs[i] = (struct ibv_mr){.context = &context,
                                 .pd = of,
                                 .addr = addr,
                                 .length = bytes,
                                 .lkey = (uint32_t)i + 1,
                                 .rkey = (uint32_t)i + 1001};
        return &mrs[i];
    }
    errno = ENOMEM;
    return NULL;
}

static struct ibv_mr *reg_dmabuf_mr(struct ibv_pd *of, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access)
{
    (void)offset, (void)fd;
    return reg_mr(of, (void *)(uintptr_t)iova, bytes, access);
}

static int dereg_mr(struct ibv_mr *mr)
{
    mr_alive[mr - mrs] = false;
    fake.mrs--;
    return 0;
}

static bool covered(uint32_t index, uint64_t addr, uint64_t bytes)
{
    return index < MRS && mr_alive[index] && addr >= (uint64_t)(uintptr_t)mrs[index].addr &&
           addr + bytes <= (uint64_t)(uintptr_t)mrs[index].addr + mrs[index].length;
}

/* ---- requests ------------------------------------------------------------------------------------------------------
 */

static bool late(enum ibv_wr_opcode opcode)
{
    return opcode != IBV_WR_RDMA_WRITE;
}

/* A request takes effect. */
static void perform(struct pending *p)
{
    void *local = p->wr.send_flags & IBV_SEND_INLINE ? (void *)&p->inline_word : (void *)(uintptr_t)p->sge.addr;
    bool atomic = p->wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || p->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    uint64_t there = atomic ? p->wr.wr.atomic.remote_addr : p->wr.wr.rdma.remote_addr;
    uint32_t key = atomic ? p->wr.wr.atomic.rkey : p->wr.wr.rdma.rkey;
    void *remote = (void *)(uintptr_t)there;

    p->done = true;
    if (!(p->wr.send_flags & IBV_SEND_INLINE) && !covered(p->sge.lkey - 1, p->sge.addr, p->sge.length))
        p->status = IBV_WC_LOC_PROT_ERR;
    else if (!covered(key - 1001, there, p->sge.length))
        p->status = IBV_WC_REM_ACCESS_ERR;
    else if (atomic && (p->sge.length != 8 || there % 8))
        p->status = IBV_WC_REM_INV_REQ_ERR;
    if (p->status != IBV_WC_SUCCESS)
        return;
    if (p->wr.opcode == IBV_WR_RDMA_WRITE) {
        memcpy(remote, local, p->sge.length);
    } else if (p->wr.opcode == IBV_WR_RDMA_READ) {
        memcpy(local, remote, p->sge.length);
    } else {
        uint64_t *word = remote, old = *word;
        if (p->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
            *word += p->wr.wr.atomic.compare_add;
        else if (old == p->wr.wr.atomic.compare_add)
            *word = p->wr.wr.atomic.swap;
        memcpy(local, &old, 8);
    }
}

static struct pending *at(struct qp *q, uint64_t i)
{
    return &q->queue[i % DEEP];
}

/* Late ones before `end`. */
static void perform_until(struct qp *q, uint64_t end)
{
    for (uint64_t i = q->tail; i < end; i++) {
        if (!at(q, i)->done)
            perform(at(q, i));
    }
}

static bool is_self(const struct qp *q)
{
    return q->qp.send_cq->cqe == VERBS_SELF_CQE;
}

static void note(struct qp *q, const struct ibv_send_wr *wr, struct pending *p)
{
    if (is_self(q))
        return;
    REQUIRE(fake.count < FAKE_LOG, "log");
    if (fake.count == fake.fail_at)
        p->status = IBV_WC_RETRY_EXC_ERR;
    fake.log[fake.count++] = (struct fake_request){
        fake.doorbells, q->qp.qp_num, wr->opcode, wr->send_flags, wr->wr.rdma.remote_addr, wr->sg_list->length};
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct qp *q = &qps[qp->qp_num];

    for (; wr; wr = wr->next) {
        struct pending *p = at(q, q->head);
        *bad = wr;
        if (q->state != IBV_QPS_RTS || wr->num_sge != 1)
            return EINVAL;
        if (q->head - q->tail >= q->most)
            return ENOMEM;
        if ((wr->send_flags & IBV_SEND_INLINE) && wr->sg_list->length > fake.max_inline)
            return EINVAL;
        if (wr->sg_list->length > fake.max_msg)
            return EINVAL;
        memset(p, 0, sizeof *p);
        p->wr = *wr;
        p->sge = *wr->sg_list;
        if (wr->send_flags & IBV_SEND_INLINE)
            memcpy(&p->inline_word, (void *)(uintptr_t)p->sge.addr, p->sge.length);
        note(q, wr, p);
        if (wr->send_flags & IBV_SEND_FENCE)
            perform_until(q, q->head);
        if (!late(wr->opcode) && p->status == IBV_WC_SUCCESS)
            perform(p);
        q->head++;
    }
    fake.doorbells += !is_self(q);
    return 0;
}

/* The next completion of a queue pair: a signaled request, or one that failed, after which all others do. */
static bool complete(struct qp *q, struct ibv_wc *wc)
{
    for (uint64_t i = q->tail; i < q->head; i++) {
        struct pending *p = at(q, i);
        if (q->state == IBV_QPS_ERR)
            p->status = p->status == IBV_WC_SUCCESS ? IBV_WC_WR_FLUSH_ERR : p->status;
        else if (!p->done && p->status == IBV_WC_SUCCESS)
            perform(p);
        if (p->status == IBV_WC_SUCCESS && !(p->wr.send_flags & IBV_SEND_SIGNALED))
            continue;
        *wc = (struct ibv_wc){.wr_id = p->wr.wr_id, .status = p->status, .qp_num = q->qp.qp_num};
        q->tail = i + 1;
        if (p->status != IBV_WC_SUCCESS)
            q->state = IBV_QPS_ERR;
        return true;
    }
    return false;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    int n = 0;

    for (int i = 1; i < QPS && n < most; i++) {
        if (!qps[i].alive || qps[i].qp.send_cq != cq || (fake.hold && !is_self(&qps[i])))
            continue;
        while (n < most && complete(&qps[i], &wc[n]))
            n++;
    }
    for (int i = 1; i < QPS && cq->cqe == VERBS_SELF_CQE; i++) {
        if (qps[i].alive && fake.elsewhere)
            perform_until(&qps[i], qps[i].head);
    }
    return n;
}

/* ---- objects -------------------------------------------------------------------------------------------------------
 */

static struct ibv_qp *create_qp(struct ibv_pd *of, struct ibv_qp_init_attr *init)
{
    if (fake.qp_error) {
        errno = fake.qp_error;
        return NULL;
    }
    for (uint32_t i = 1; i < QPS; i++) {
        if (qps[i].alive)
            continue;
        memset(&qps[i], 0, sizeof qps[i]);
        qps[i].queue = calloc(DEEP, sizeof *qps[i].queue);
        REQUIRE(qps[i].queue && init->cap.max_send_wr <= DEEP, "memory");
        qps[i].alive = true;
        qps[i].most = init->cap.max_send_wr;
        qps[i].qp = (struct ibv_qp){.context = &context, .pd = of, .send_cq = init->send_cq, .qp_num = i};
        init->cap.max_inline_data = fake.max_inline;
        fake.qps++;
        return &qps[i].qp;
    }
    errno = ENOMEM;
    return NULL;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)mask;
    qps[qp->qp_num].state = attr->qp_state;
    return 0;
}

static int destroy_qp(struct ibv_qp *qp)
{
    free(qps[qp->qp_num].queue);
    qps[qp->qp_num].alive = false;
    fake.qps--;
    return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *of, int cqe, void *user, struct ibv_comp_channel *channel,
                                int vector)
{
    (void)user, (void)channel, (void)vector;
    for (int i = 0; i < CQS; i++) {
        if (cq_alive[i])
            continue;
        cq_alive[i] = true;
        fake.cqs++;
        cqs[i] = (struct ibv_cq){.context = of, .cqe = cqe};
        return &cqs[i];
    }
    errno = ENOMEM;
    return NULL;
}

static int destroy_cq(struct ibv_cq *cq)
{
    cq_alive[cq - cqs] = false;
    fake.cqs--;
    return 0;
}

static struct ibv_device **get_device_list(int *count)
{
    *count = 1;
    return devices;
}

static void free_device_list(struct ibv_device **list)
{
    (void)list;
}

static const char *get_device_name(struct ibv_device *of)
{
    (void)of;
    return "fake0";
}

static struct ibv_context *open_device(struct ibv_device *of)
{
    context = (struct ibv_context){.device = of};
    context.ops.post_send = post_send;
    context.ops.poll_cq = poll_cq;
    fake.contexts++;
    return &context;
}

static int close_device(struct ibv_context *of)
{
    (void)of;
    fake.contexts--;
    return 0;
}

static int query_device(struct ibv_context *of, struct ibv_device_attr *attr)
{
    (void)of;
    *attr = (struct ibv_device_attr){
        .max_cqe = 32767, .max_qp_wr = 16384, .max_qp_rd_atom = 16, .atomic_cap = fake.atomics};
    return 0;
}

static int query_port(struct ibv_context *of, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    struct ibv_port_attr *full = (struct ibv_port_attr *)attr;
    (void)of, (void)port;
    full->state = IBV_PORT_ACTIVE;
    full->active_mtu = fake.mtu;
    full->max_msg_sz = fake.max_msg;
    return 0;
}

static int query_gid(struct ibv_context *of, uint8_t port, int index, union ibv_gid *gid)
{
    (void)of, (void)port, (void)index;
    memset(gid, 0x5a, sizeof *gid);
    return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *of)
{
    pd.context = of;
    fake.pds++;
    return &pd;
}

static int dealloc_pd(struct ibv_pd *of)
{
    (void)of;
    fake.pds--;
    return 0;
}

static const char *wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "some error";
}

const char *verbs_load(void)
{
    verbs = (struct verbs_lib){get_device_list, free_device_list, get_device_name, open_device,  close_device,
                               query_device,    query_port,       query_gid,       alloc_pd,     dealloc_pd,
                               reg_mr,          reg_dmabuf_mr,    dereg_mr,        create_cq,    destroy_cq,
                               create_qp,       modify_qp,        destroy_qp,      wc_status_str};
    return NULL;
}
