/*
 * init.c - the life of the runtime: tern_init and tern_finalize in their order and its reverse, the state block, the
 * way into every public call, and what happens when the process forks or exits under it.
 */
#include <stdlib.h>
#include <string.h>

#include "host/bootstrap/bootstrap.h"
#include "host/rt.h"
#include "host/range.h"
#include "proxy/proxy.h"

struct tern_rt *tern_rt_current;
_Thread_local const char *tern_call_name;

static pthread_mutex_t life_lock = PTHREAD_MUTEX_INITIALIZER; /* init and finalize, one at a time */
static pthread_once_t life_once = PTHREAD_ONCE_INIT;
static uint32_t generations;
static char last_abort_reason[512]; /* of the runtime that ended */

/*
 * State blocks are kept for the life of the process, one per device that was used: a kernel with a context of an ended
 * runtime then finds a generation that is not its own instead of memory that is gone.
 */
struct state_block {
    struct state_block *next;
    int ordinal;
    struct tern_state_host *host, *host_dev;
    struct tern_state_dev *dev;
};
static struct state_block *state_blocks;

/* ---- fork and exit ----------------------------------------------------------------------------------------------- */

/* A child has the memory but not the threads: for it there is no runtime. Its sockets are closed in fork.c. */
static void life_child(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    memcpy(&life_lock, &unlocked, sizeof life_lock);
    tern_rt_current = NULL;
}

/* The process exits without tern_finalize: no thread of ours may run while what it uses is taken apart. */
static void life_exit(void)
{
    if (tern_rt_current)
        tern_control_halt(tern_rt_current);
}

static void life_register(void)
{
    pthread_atfork(NULL, NULL, life_child);
    atexit(life_exit);
}

/* ---- state block ------------------------------------------------------------------------------------------------- */

tern_status_t tern_state_publish(struct tern_rt *rt)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the last one to publish has the last word */
    tern_status_t status;
    /* what kernels only read: the abort word and its stamp before, the epochs after it are theirs */
    struct tern_state_dev image = {.generation = rt->state_host->generation,
                                   .user_bytes = rt->user_backed,
                                   .internal_bytes = rt->internal_backed,
                                   .library_timeout_ms = (uint64_t)rt->env.device_timeout_ms,
                                   .host = rt->state_host_dev,
                                   .heap = rt->span,
                                   .user_offset = rt->user_offset,
                                   .window = rt->window,
                                   .slots = rt->slots_dev,
                                   .stride = rt->stride,
                                   .n_pes = (uint32_t)rt->n_pes};
    size_t from = offsetof(struct tern_state_dev, generation), to = offsetof(struct tern_state_dev, pad2);

    pthread_mutex_lock(&lock);
    if (rt->proxy && image.generation)
        tern_proxy_state(rt, &image);
    status = tern_device_write(rt, (char *)rt->state_dev + from, (const char *)&image + from, to - from);
    pthread_mutex_unlock(&lock);
    return status;
}

static tern_status_t state_block_new(struct tern_rt *rt, struct state_block **out)
{
    void *host = NULL, *host_dev = NULL, *dev = NULL;
    struct state_block *block = calloc(1, sizeof *block);
    tern_status_t status;
    if (!block)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the state block; free some");
    status = tern_device_host_alloc(rt, sizeof(struct tern_state_host), &host, &host_dev);
    if (status != TERN_OK)
        goto err_block;
    status = tern_device_alloc(rt, sizeof(struct tern_state_dev), &dev);
    if (status != TERN_OK)
        goto err_host;
    *block = (struct state_block){state_blocks, rt->device_id.ordinal, host, host_dev, dev};
    *out = state_blocks = block;
    return TERN_OK;
err_host:
    tern_device_host_free(rt, host);
err_block:
    free(block);
    return status;
}

static tern_status_t state_open(struct tern_rt *rt)
{
    struct state_block *block = state_blocks;
    tern_status_t status = TERN_OK;

    while (block && block->ordinal != rt->device_id.ordinal)
        block = block->next;
    if (block && tern_device_zero(rt, block->dev, sizeof *block->dev) != TERN_OK)
        block->ordinal = -1, block = NULL; /* the program has reset the device: the old block is gone */
    if (!block)
        status = state_block_new(rt, &block);
    if (status != TERN_OK)
        return status;
    memset(block->host, 0, sizeof *block->host);
    rt->state_host = block->host;
    rt->state_host_dev = block->host_dev;
    rt->state_dev = block->dev;
    __atomic_store_n(&rt->state_host->generation, rt->generation, __ATOMIC_RELEASE);
    status = tern_state_publish(rt);
    if (status == TERN_OK)
        tern_control_watch(rt);
    return status;
}

static void state_close(struct tern_rt *rt)
{
    if (!rt->state_host)
        return;
    __atomic_store_n(&rt->state_host->generation, 0, __ATOMIC_RELEASE);
    rt->user_backed = rt->internal_backed = 0;
    if (tern_state_publish(rt) != TERN_OK)
        tern_log(TERN_LOG_WARN, "the device could not be told that the runtime has ended");
    rt->state_host = NULL;
    tern_control_watch(rt);
}

/* ---- the proxy's ear --------------------------------------------------------------------------------------------- */

static void told_message(struct tern_rt *rt, int from, const void *body, size_t bytes)
{
    if (rt->proxy)
        tern_proxy_message(rt, from, body, bytes);
}

static void told_dead(struct tern_rt *rt, int pe)
{
    if (rt->proxy)
        tern_proxy_dead(rt, pe);
}

static const struct tern_control_calls control_calls = {told_message, told_dead, tern_dump_write};

/* ---- init -------------------------------------------------------------------------------------------------------- */

/* The bootstrap's guess at this PE's number on its node: enough to choose a device before the PEs have met. */
static tern_status_t node_guess(struct tern_rt *rt)
{
    int *pes, count;
    tern_status_t status = rt->bootstrap->local(rt, &pes, &count);
    if (status != TERN_OK)
        return status;
    for (rt->node_pe = 0; rt->node_pe < count && pes[rt->node_pe] != rt->pe;)
        rt->node_pe++;
    free(pes);
    return TERN_OK;
}

/*
 * Steps before the PEs have met. What fails here for this PE alone is kept in *own, so that it can still meet the
 * others and tell them, instead of letting them wait.
 */
static tern_status_t meet(struct tern_rt *rt, const tern_init_attr_t *attr, tern_status_t *own)
{
    tern_status_t status = tern_bootstrap_open(rt, attr);
    if (status != TERN_OK)
        return status;
    if (*own == TERN_OK)
        *own = tern_log_open((enum tern_log_level)rt->env.log, rt->env.log_file, rt->pe);
    status = tern_blob_fill(rt);
    if (status == TERN_OK)
        status = tern_control_open(rt);
    if (status == TERN_OK)
        status = node_guess(rt);
    if (status != TERN_OK)
        return status;
    if (*own == TERN_OK)
        *own = tern_device_open(rt, attr ? attr->gpu : -1);
    if (*own == TERN_OK)
        rt->blob.device = rt->device_id;
    if (*own == TERN_OK)
        *own = tern_buffers_open(rt);
    if (*own == TERN_OK)
        *own = tern_dump_open(rt);
    return rt->bootstrap->exchange(rt, &rt->blob);
}

static tern_status_t build(struct tern_rt *rt, tern_status_t own)
{
    tern_status_t status = tern_equal_check(rt);
    if (status == TERN_OK)
        status = tern_agree_status(rt, NULL, own);
    if (status == TERN_OK)
        status = tern_peers_find(rt);
    if (status == TERN_OK)
        status = tern_agree_status(rt, NULL, state_open(rt));
    if (status == TERN_OK)
        status = tern_proxy_open(rt);
    if (status == TERN_OK)
        status = tern_heap_open(rt);
    if (status != TERN_OK)
        return status;
    tern_control_deliver(rt, &control_calls);
    status = tern_proxy_start(rt);
    if (status == TERN_OK) /* sizes for kernels; and the threads of all PEs run before the first kernel does */
        status = tern_state_publish(rt);
    return tern_agree_status(rt, NULL, status);
}

static void release(struct tern_rt *rt)
{
    tern_proxy_stop(rt);
    if (rt->control) {
        tern_dump_close(rt);
        tern_control_deliver(rt, NULL);
        state_close(rt);
    }
    tern_buffers_close(rt);
    tern_heap_close(rt);
    tern_proxy_close(rt);
    tern_peers_close(rt);
    tern_device_close(rt);
    tern_control_stop(rt);
    if (rt->bootstrap)
        rt->bootstrap->close(rt);
    if (atomic_load(&rt->abort))
        memcpy(last_abort_reason, rt->abort_reason, sizeof last_abort_reason);
    tern_log_close();
    tern_env_unload(&rt->env);
    free(rt);
}

static tern_status_t start(struct tern_rt *rt, const tern_init_attr_t *attr)
{
    static bool warned;
    tern_status_t own = tern_env_load(&rt->env), status;

    tern_log_open((enum tern_log_level)rt->env.log, NULL, -1);
    if (!warned)
        tern_env_warn_unknown();
    warned = true;
    status = meet(rt, attr, &own);
    if (status != TERN_OK)
        return status;
    status = tern_control_start(rt);
    if (status != TERN_OK) { /* known to this PE only */
        tern_control_abort(rt, status, rt->pe, "PE %d could not start: %s", rt->pe, tern_last_error());
        return status;
    }
    return build(rt, own);
}

static tern_status_t attr_check(const tern_init_attr_t *attr)
{
    if (attr && attr->size != sizeof *attr)
        return tern_error(TERN_ERR_INVALID,
                          "tern_init_attr: `size` is %zu, not sizeof(tern_init_attr_t) = %zu; set it, and compile "
                          "with the headers of this library",
                          attr->size, sizeof *attr);
    return TERN_OK;
}

tern_status_t tern_init_attr(const tern_init_attr_t *attr)
{
    TERN_RANGE("tern_init_attr");
    struct tern_rt *rt;
    tern_status_t status = attr_check(attr);

    if (status != TERN_OK)
        return status;
    tern_call_name = "tern_init";
    pthread_once(&life_once, life_register);
    pthread_mutex_lock(&life_lock);
    if (tern_rt_current) {
        status =
            tern_error(TERN_ERR_STATE, "tern_init: a runtime is running in this process; call tern_finalize first");
        goto out;
    }
    rt = calloc(1, sizeof *rt);
    if (!rt) {
        status = tern_error(TERN_ERR_NO_MEMORY, "no host memory for the runtime; free some");
        goto out;
    }
    rt->generation = ++generations ? generations : ++generations;
    last_abort_reason[0] = '\0';
    status = start(rt, attr);
    if (status == TERN_OK) {
        tern_log(TERN_LOG_INFO, "started: PE %d of %d (%d of %d on this node), %s, %s", rt->pe, rt->n_pes, rt->node_pe,
                 rt->node_n_pes, rt->bootstrap->name, rt->device_id.name);
        tern_rt_current = rt;
    } else {
        release(rt);
    }
out:
    pthread_mutex_unlock(&life_lock);
    return status;
}

tern_status_t tern_init(void)
{
    return tern_init_attr(NULL);
}

/* ---- finalize ---------------------------------------------------------------------------------------------------- */

/*
 * All PEs meet for the last time, with nothing of theirs under way. A job that was aborted, or has dead PEs, does not
 * wait for others; what could not be completed at the dead was told by the calls that missed it.
 */
static tern_status_t part(struct tern_rt *rt)
{
    if (atomic_load(&rt->abort))
        return TERN_OK;
    if (rt->proxy)
        tern_proxy_quiet(rt);
    for (int pe = 0; pe < rt->n_pes; pe++) {
        if (tern_control_dead(rt, pe))
            return TERN_OK;
    }
    return tern_agree(rt, true, "tern_finalize");
}

tern_status_t tern_finalize(void)
{
    TERN_RANGE("tern_finalize");
    struct tern_rt *rt;
    tern_status_t status;

    tern_call_name = "tern_finalize";
    pthread_mutex_lock(&life_lock);
    rt = tern_rt_current;
    if (!rt) {
        status = tern_error(TERN_ERR_STATE, "tern_finalize: no runtime is running; call tern_init first");
        goto out;
    }
    tern_control_report(rt);
    status = part(rt);
    if (status == TERN_ERR_MISMATCH)
        goto out; /* others are elsewhere: the call had no effect */
    tern_rt_current = NULL;
    release(rt);
out:
    pthread_mutex_unlock(&life_lock);
    return status;
}

int tern_initialized(void)
{
    return tern_rt_current != NULL;
}

/* ---- the way into a call ----------------------------------------------------------------------------------------- */

struct tern_rt *tern_rt_enter(const char *call, tern_status_t *status)
{
    struct tern_rt *rt = tern_rt_current;
    tern_call_name = call;
    if (!rt) {
        *status = tern_error(TERN_ERR_STATE, "%s: no runtime is running; call tern_init first", call);
        return NULL;
    }
    tern_control_report(rt);
    if (atomic_load(&rt->abort)) {
        *status = tern_error(tern_abort_status(rt), "%s: the job was aborted: %s; call tern_finalize", call,
                             rt->abort_reason);
        return NULL;
    }
    *status = TERN_OK;
    return rt;
}

const char *tern_abort_reason(void)
{
    struct tern_rt *rt = tern_rt_current;
    if (!rt)
        return last_abort_reason;
    tern_control_report(rt);
    return atomic_load(&rt->abort) ? rt->abort_reason : "";
}

tern_status_t tern_abort(const char *reason)
{
    tern_status_t status;
    struct tern_rt *rt = tern_rt_enter("tern_abort", &status);
    if (!rt)
        return status;
    tern_control_abort(rt, TERN_ERR_ABORTED, rt->pe, "PE %d called tern_abort: %s", rt->pe,
                       reason ? reason : "no reason given");
    return TERN_OK;
}

tern_status_t tern_status(void)
{
    struct tern_rt *rt = tern_rt_current;
    if (!rt)
        return TERN_ERR_STATE;
    tern_control_report(rt);
    return tern_abort_status(rt);
}
