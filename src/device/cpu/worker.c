/*
 * worker.c - the OS threads that run blocks, copies and fills; how many blocks are resident; failures of the device, and
 * the starvation of blocks that can never be resident.
 *
 * Residency (TERN_CPU_SMS) says how many blocks may run at once. As long as none waits for another, few OS threads do the
 * same in less time and memory: at first a few blocks run, one more each time that a block begins to wait, and twice as
 * many for each millisecond in which none ends (a block may wait without a word, in a plain loop).
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <tern/detail/prim.h>

#include "device/cpu/device.h"
#include "host/rt.h"

#define PATIENCE_NS 5000000000u
#define HOLD_NS 1000000

uint64_t tern_cpu_patience_ns = PATIENCE_NS;
_Atomic bool tern_cpu_failed;

static unsigned env_number(const char *name, unsigned standard, unsigned most)
{
    const char *text = getenv(name);
    char *end;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    return text && *text && !*end && value >= 1 && value <= most ? (unsigned)value : standard;
}

/* Blocks that run at once without need. TSAN must see as many as there can be, with no lock between them. */
static unsigned few(void)
{
#ifdef TERN_CPU_TSAN
    return UINT_MAX;
#else
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 2 ? 4 : 2 * (unsigned)cores;
#endif
}

/* The device works without a runtime, so it reads its own two variables; tern_init checks and reports them. */
__attribute__((constructor)) static void device_size(void)
{
    cpu_device.sms = env_number("TERN_CPU_SMS", 16, 1024);
    cpu_device.threads_free = cpu_device.sms * CPU_THREADS_PER_SM;
    cpu_device.blocks_free = cpu_device.sms * CPU_BLOCKS_PER_SM;
    cpu_device.allowed = few();
    tern_cpu_patience_ns = (uint64_t)PATIENCE_NS * env_number("TERN_TEST_SCALE", 1, 1000);
}

int cpu_device_open(void)
{
    bool busy = false;
    cpu_lock();
    for (unsigned i = 0; i < cpu_device.worker_count; i++)
        busy |= cpu_device.workers[i]->op != NULL;
    if (!busy) {
        cpu_device.error = CPU_OK;
        cpu_device.fault[0] = '\0';
        cpu_device.abort_at = 0;
        atomic_store(&tern_cpu_failed, false);
    }
    int sms = (int)cpu_device.sms;
    cpu_unlock();
    return sms;
}

/* ---- failure ------------------------------------------------------------------------------------------------------------- */

/* The first failure stays: running blocks end at their next pause, what queues is dropped, and the job is aborted. */
static void cpu_fail_locked(const char *sentence)
{
    if (cpu_device.error)
        return;
    cpu_device.error = CPU_LAUNCH_FAILURE;
    snprintf(cpu_device.fault, sizeof cpu_device.fault, "%s", sentence);
    atomic_store(&tern_cpu_failed, true);
}

static void report(const char *sentence)
{
    if (tern_rt_current)
        tern_control_abort(tern_rt_current, TERN_ERR_ABORTED, tern_rt_current->pe, "%s", sentence);
    else
        tern_log(TERN_LOG_ERROR, "%s", sentence);
}

static void block_failed(const struct cpu_op *op, const struct block *b)
{
    char sentence[512];
    snprintf(sentence, sizeof sentence, "kernel %s, block (%u,%u,%u) of %u threads: %s", op->kernel->name,
             b->view.block_idx.x, b->view.block_idx.y, b->view.block_idx.z, b->threads, b->fault);
    cpu_lock();
    bool first = !cpu_device.error;
    cpu_fail_locked(sentence);
    cpu_unlock();
    if (first)
        report(sentence);
}

/* Waits store too: the copy of the abort word in the state block. */
bool tern_cpu_is_progress(const volatile void *p)
{
    const char *state = tern_rt_current ? (const char *)tern_rt_current->state_dev : NULL;
    return p && !(state && (const volatile char *)p >= state &&
                  (const volatile char *)p < state + sizeof(struct tern_state_dev));
}

/* The kernel whose blocks queue for a place, if all resident blocks have waited for long. */
static const struct cpu_op *starved_kernel(uint64_t now)
{
    const struct cpu_op *queued = NULL;
    for (const struct tern_cpu_stream *s = cpu_device.streams; s; s = s->next) {
        const struct cpu_op *op = s->head;
        if (op && op->kind == CPU_OP_KERNEL && op->started < op->blocks && cpu_ready_locked(s) &&
            (!queued || op->seq < queued->seq))
            queued = op;
    }
    for (unsigned i = 0; queued && i < cpu_device.worker_count; i++) {
        const struct cpu_worker *w = cpu_device.workers[i];
        uint64_t since = w->resident && w->block ? atomic_load(&w->block->vain_since) : 0;
        if (w->resident && (!since || now - since < tern_cpu_patience_ns))
            return NULL;
    }
    return queued;
}

/*
 * A resident block has waited for long. If all have, and others queue for their places, then those that queue are what
 * they wait for. With a runtime its waits end by job abort; waits that do not look at that end with the device.
 */
void tern_cpu_starving(uint64_t now)
{
    char sentence[512];
    bool abort_job = false, fail = false;
    cpu_lock();
    const struct cpu_op *op = starved_kernel(now);
    if (op) {
        snprintf(sentence, sizeof sentence,
                 "grid of %llu blocks waits for blocks that cannot be resident: kernel %s, %llu of its blocks have "
                 "started; launch fewer blocks, or raise TERN_CPU_SMS (%u)",
                 (unsigned long long)op->blocks, op->kernel->name, (unsigned long long)op->started, cpu_device.sms);
        abort_job = tern_rt_current && !cpu_device.abort_at;
        fail = !abort_job && !cpu_device.error && now - cpu_device.abort_at > tern_cpu_patience_ns;
        if (abort_job)
            cpu_device.abort_at = now;
        if (fail)
            cpu_fail_locked(sentence);
    }
    cpu_unlock();
    if (abort_job || fail)
        report(sentence);
}

/* ---- workers ------------------------------------------------------------------------------------------------------------- */

static tern_cpu_dim_t block_index(const struct cpu_op *op, uint64_t index)
{
    return (tern_cpu_dim_t){(unsigned)(index % op->grid.x), (unsigned)(index / op->grid.x % op->grid.y),
                            (unsigned)(index / op->grid.x / op->grid.y)};
}

/* Threads that a block takes of the residency: whole warps. */
static unsigned block_threads(const struct cpu_op *op)
{
    return (op->block.x * op->block.y * op->block.z + 31u) & ~31u;
}

static void work(struct cpu_worker *w)
{
    const struct cpu_op *op = w->op;
    switch (op->kind) {
    case CPU_OP_KERNEL:
        if (!tern_cpu_block_run(w->block, op->kernel, op->args, op->grid, op->block, block_index(op, w->index), op->smem))
            block_failed(op, w->block);
        break;
    case CPU_OP_COPY:
        memmove(op->dst, op->src, op->bytes);
        break;
    default:
        memset(op->dst, op->value, op->bytes);
    }
}

static void ended_locked(struct cpu_worker *w)
{
    struct cpu_op *op = w->op;
    cpu_device.ended++;
    w->op = NULL;
    w->next = cpu_device.idle;
    cpu_device.idle = w;
    if (op->kind == CPU_OP_KERNEL) {
        w->resident = false;
        if (!--cpu_device.resident)
            cpu_device.allowed = few();
        cpu_device.threads_free += block_threads(op);
        cpu_device.blocks_free++;
        if (++op->ended < op->blocks)
            return;
    }
    cpu_op_ended_locked(op);
}

/* Blocks are held back, and none has ended for a while. */
static void allow_more_locked(unsigned more)
{
    cpu_device.allowed += more;
    atomic_store(&cpu_device.held, false);
    cpu_dispatch_locked();
}

void tern_cpu_waits(void)
{
    if (!atomic_load_explicit(&cpu_device.held, memory_order_relaxed))
        return;
    cpu_lock();
    if (atomic_load(&cpu_device.held))
        allow_more_locked(1);
    cpu_unlock();
}

static void wait_for_work_locked(struct cpu_worker *w)
{
    while (!w->op) {
        if (!atomic_load(&cpu_device.held)) {
            pthread_cond_wait(&w->wake, &cpu_device.lock);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += HOLD_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        uint64_t ended = cpu_device.ended;
        int error = pthread_cond_timedwait(&w->wake, &cpu_device.lock, &until);
        if (error && !w->op && atomic_load(&cpu_device.held) && cpu_device.ended == ended)
            allow_more_locked(cpu_device.allowed);
    }
}

static void *worker_main(void *arg)
{
    struct cpu_worker *w = arg;
    struct block *block = tern_cpu_block_new();
    cpu_lock();
    w->block = block;
    if (!block)
        cpu_fail_locked("no memory for a block");
    for (;;) {
        wait_for_work_locked(w);
        cpu_unlock();
        if (block)
            work(w);
        cpu_lock();
        ended_locked(w);
        cpu_dispatch_locked();
    }
    return NULL;
}

static struct cpu_worker *worker_new_locked(void)
{
    if (cpu_device.worker_count == cpu_device.worker_room) {
        unsigned room = cpu_device.worker_room ? 2 * cpu_device.worker_room : 16;
        struct cpu_worker **workers = realloc(cpu_device.workers, room * sizeof(struct cpu_worker *));
        if (!workers)
            return NULL;
        cpu_device.workers = workers;
        cpu_device.worker_room = room;
    }
    struct cpu_worker *w = calloc(1, sizeof *w);
    pthread_t thread;
    pthread_attr_t attr;
    if (!w)
        return NULL;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &clock);
    pthread_condattr_destroy(&clock);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigset_t all, before;               /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attr, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (error) {
        free(w);
        return NULL;
    }
    cpu_device.workers[cpu_device.worker_count++] = w;
    return w;
}

/* The block could be resident, but must not yet: one worker without work looks after it. */
static void hold_locked(void)
{
    if (atomic_exchange(&cpu_device.held, true))
        return;
    if (!cpu_device.idle)
        cpu_device.idle = worker_new_locked();
    if (cpu_device.idle)
        pthread_cond_signal(&cpu_device.idle->wake);
    else
        cpu_device.allowed = UINT_MAX;
}

bool cpu_worker_start_locked(struct cpu_op *op, uint64_t index)
{
    bool kernel = op->kind == CPU_OP_KERNEL;
    if (kernel && (!cpu_device.blocks_free || cpu_device.threads_free < block_threads(op)))
        return false;
    if (kernel && cpu_device.resident >= cpu_device.allowed) {
        hold_locked();
        return false;
    }
    struct cpu_worker *w = cpu_device.idle;
    if (w)
        cpu_device.idle = w->next;
    else
        w = worker_new_locked();
    if (!w) {                           /* fewer threads than wanted: others end, then this one's turn comes */
        if (!cpu_device.worker_count)
            cpu_fail_locked("the system gives no thread; raise the limit of processes (ulimit -u)");
        return false;
    }
    if (kernel) {
        cpu_device.threads_free -= block_threads(op);
        cpu_device.blocks_free--;
        cpu_device.resident++;
    }
    w->op = op;
    w->index = index;
    w->resident = kernel;
    pthread_cond_signal(&w->wake);
    return true;
}
