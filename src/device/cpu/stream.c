/*
 * stream.c - streams, events, and which operation may start now. A stream is a queue; its head is what runs. The default
 * stream is CUDA's legacy one: it orders itself with all streams that were made without cudaStreamNonBlocking, both ways,
 * by the sequence numbers of operations.
 */
#include <stdlib.h>
#include <string.h>
#include <tern/detail/cpu_api.h>

#include "device/cpu/device.h"

typedef struct tern_cpu_stream stream_t;
typedef struct tern_cpu_event event_t;

struct cpu_device cpu_device = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .progress = PTHREAD_COND_INITIALIZER,
    .streams = &cpu_device.standard,
    .standard = {.blocking = true},
};

static __thread int last_error;

int cpu_remember(int error)
{
    if (error)
        last_error = error;
    return error;
}

/* CUDA's: the sticky error of the device stays, others are given out once. */
int tern_cpu_last_error(int clear)
{
    cpu_lock();
    int error = cpu_device.error ? cpu_device.error : last_error;
    cpu_unlock();
    if (clear)
        last_error = CPU_OK;
    return error;
}

void cpu_lock(void)
{
    pthread_mutex_lock(&cpu_device.lock);
}

void cpu_unlock(void)
{
    pthread_mutex_unlock(&cpu_device.lock);
}

/* The stream of a user's handle: NULL and cudaStreamLegacy name the default stream. */
stream_t *cpu_stream(stream_t *handle)
{
    return (uintptr_t)handle <= 1 ? &cpu_device.standard : handle;
}

/* ---- operations -------------------------------------------------------------------------------------------------------- */

struct cpu_op *cpu_op_new(enum cpu_op_kind kind, size_t arg_bytes)
{
    struct cpu_op *op = NULL;
    if (posix_memalign((void **)&op, 64, (sizeof *op + 63) / 64 * 64 + arg_bytes))
        return NULL;
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->arg_bytes = arg_bytes;
    return op;
}

struct cpu_op *cpu_op_copy(const struct cpu_op *op)
{
    struct cpu_op *copy = cpu_op_new(op->kind, op->arg_bytes);
    if (!copy)
        return NULL;
    size_t head = (sizeof *op + 63) / 64 * 64;
    memcpy(copy, op, sizeof *op);
    memcpy((char *)copy + head, (const char *)op + head, op->arg_bytes);
    copy->next = NULL;
    if (op->kind == CPU_OP_KERNEL) {    /* the list of arguments points into the operation itself */
        copy->args = (void **)((char *)copy + ((char *)op->args - (char *)op));
        for (unsigned i = 0; i < op->kernel->count; i++)
            copy->args[i] = (char *)copy + ((char *)op->args[i] - (char *)op);
    }
    if (copy->event)
        copy->event->references++;
    return copy;
}

void cpu_event_release(event_t *event)
{
    if (!--event->references)
        free(event);
}

void cpu_op_free(struct cpu_op *op)
{
    if (op->event)
        cpu_event_release(op->event);
    free(op);
}

/* ---- what may run ------------------------------------------------------------------------------------------------------- */

/* May the head of the stream run, as far as the default stream's order goes? */
bool cpu_ready_locked(const stream_t *stream)
{
    const struct cpu_op *op = stream->head;
    if (!op)
        return false;
    const stream_t *standard = &cpu_device.standard;
    if (stream != standard)
        return !stream->blocking || !standard->head || standard->head->seq > op->seq;
    for (const stream_t *other = standard->next; other; other = other->next)
        if (other->blocking && other->head && other->head->seq < op->seq)
            return false;
    return true;
}

static void stream_remove(stream_t *stream)
{
    stream_t **link = &cpu_device.streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    free(stream);
}

void cpu_op_ended_locked(struct cpu_op *op)
{
    stream_t *stream = op->stream;
    stream->head = op->next;
    if (!stream->head)
        stream->tail = NULL;
    cpu_op_free(op);
    if (stream->destroyed && !stream->head)
        stream_remove(stream);
    if (cpu_device.waiters)
        pthread_cond_broadcast(&cpu_device.progress);
}

static void event_reached(event_t *event, uint64_t version)
{
    if (event->done < version) {
        event->done = version;
        event->ns = tern_cpu_clock_ns();
    }
}

/* Operations at a stream's head that take no thread. True: something happened. */
static bool step_stream(stream_t *stream)
{
    struct cpu_op *op = stream->head;
    bool failed = cpu_device.error != CPU_OK;
    switch (op->kind) {
    case CPU_OP_RECORD:
        event_reached(op->event, op->version);
        break;
    case CPU_OP_WAIT:
        if (!failed && op->event->done < op->version)
            return false;
        break;
    case CPU_OP_KERNEL:                 /* after a failure nothing new starts */
        if (!failed || op->started != op->ended)
            return false;
        break;
    default:
        if (op->running)
            return false;
        if (!failed) {
            op->running = cpu_worker_start_locked(op, 0);
            return op->running;
        }
    }
    cpu_op_ended_locked(op);
    return true;
}

/* The oldest ready kernel that has blocks left: newer ones get what it leaves. */
static struct cpu_op *oldest_kernel(void)
{
    struct cpu_op *oldest = NULL;
    for (stream_t *s = cpu_device.streams; s; s = s->next) {
        struct cpu_op *op = s->head;
        if (op && op->kind == CPU_OP_KERNEL && op->started < op->blocks && cpu_ready_locked(s) &&
            (!oldest || op->seq < oldest->seq))
            oldest = op;
    }
    return oldest;
}

void cpu_dispatch_locked(void)
{
    for (bool again = true; again;) {
        again = false;
        for (stream_t *s = cpu_device.streams, *next; s; s = next) {
            next = s->next;
            if (cpu_ready_locked(s) && step_stream(s))
                again = true;
        }
    }
    struct cpu_op *op = NULL;
    while (!cpu_device.error && (op = oldest_kernel()) && cpu_worker_start_locked(op, op->started))
        op->started++;
    if (!op)
        atomic_store(&cpu_device.held, false);
}

void cpu_submit_locked(stream_t *stream, struct cpu_op *op)
{
    op->stream = stream;
    op->next = NULL;
    op->seq = ++cpu_device.seq;
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
}

int cpu_submit(stream_t *stream, struct cpu_op *op)
{
    int error = CPU_OK;
    cpu_lock();
    if (stream->capture) {
        error = cpu_capture_add_locked(stream, op);
    } else if (cpu_device.error) {
        error = cpu_device.error;
    } else {
        cpu_submit_locked(stream, op);
        cpu_dispatch_locked();
        op = NULL;
    }
    if (error)
        cpu_op_free(op);
    cpu_unlock();
    return cpu_remember(error);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------ */

static bool reached(const stream_t *stream, uint64_t seq)
{
    return !stream->head || stream->head->seq > seq;
}

/* Is everything that `stream` must wait for done, up to `seq`? The default stream includes all blocking ones. */
static bool all_reached(const stream_t *stream, uint64_t seq)
{
    if (stream && stream != &cpu_device.standard)
        return reached(stream, seq);
    for (const stream_t *s = cpu_device.streams; s; s = s->next)
        if ((!stream || s->blocking) && !reached(s, seq))
            return false;
    return true;
}

/* Is there nothing that an operation given now would have to wait for? Then the caller may carry it out itself. */
bool cpu_idle(const stream_t *stream)
{
    cpu_lock();
    bool idle = !cpu_device.error && !stream->capture && all_reached(stream, cpu_device.seq);
    cpu_unlock();
    return idle;
}

static void progress_wait(void)
{
    cpu_device.waiters++;
    pthread_cond_wait(&cpu_device.progress, &cpu_device.lock);
    cpu_device.waiters--;
}

int cpu_wait(stream_t *stream)
{
    cpu_lock();
    uint64_t seq = cpu_device.seq;
    while (!all_reached(stream, seq))
        progress_wait();
    int error = cpu_device.error;
    cpu_unlock();
    return cpu_remember(error);
}

int tern_cpu_synchronize(void)
{
    return cpu_wait(NULL);
}

/* ---- streams ------------------------------------------------------------------------------------------------------------- */

int tern_cpu_stream_create(stream_t **stream, unsigned flags)
{
    if (!stream || flags > 1)
        return cpu_remember(CPU_INVALID_VALUE);
    stream_t *s = calloc(1, sizeof *s);
    if (!s)
        return cpu_remember(CPU_NO_MEMORY);
    s->blocking = !flags;
    cpu_lock();
    s->next = cpu_device.standard.next;
    cpu_device.standard.next = s;
    cpu_unlock();
    *stream = s;
    return CPU_OK;
}

int tern_cpu_stream_destroy(stream_t *stream)
{
    if (cpu_stream(stream) == &cpu_device.standard)
        return cpu_remember(CPU_INVALID_HANDLE);
    cpu_lock();
    stream->destroyed = true;
    if (!stream->head)
        stream_remove(stream);
    cpu_unlock();
    return CPU_OK;
}

int tern_cpu_stream_synchronize(stream_t *stream)
{
    stream = cpu_stream(stream);
    if (stream->capture)
        return cpu_remember(CPU_CAPTURE_UNSUPPORTED);
    return cpu_wait(stream);
}

int tern_cpu_stream_query(stream_t *stream)
{
    stream = cpu_stream(stream);
    cpu_lock();
    int error = cpu_device.error;
    if (!error && !all_reached(stream, cpu_device.seq))
        error = CPU_NOT_READY;
    cpu_unlock();
    return error == CPU_NOT_READY ? error : cpu_remember(error);
}

/* ---- events --------------------------------------------------------------------------------------------------------------- */

int tern_cpu_event_create(event_t **event)
{
    event_t *e = calloc(1, sizeof *e);
    if (!e)
        return cpu_remember(CPU_NO_MEMORY);
    e->references = 1;
    *event = e;
    return CPU_OK;
}

int tern_cpu_event_destroy(event_t *event)
{
    if (!event)
        return cpu_remember(CPU_INVALID_HANDLE);
    cpu_lock();
    cpu_event_release(event);
    cpu_unlock();
    return CPU_OK;
}

/* An operation on an event, which it keeps alive. With the lock held. */
struct cpu_op *cpu_op_event(enum cpu_op_kind kind, event_t *event)
{
    struct cpu_op *op = cpu_op_new(kind, 0);
    if (!op)
        return NULL;
    op->event = event;
    event->references++;
    return op;
}

static int event_op(stream_t *stream, event_t *event, enum cpu_op_kind kind)
{
    if (!event)
        return cpu_remember(CPU_INVALID_HANDLE);
    cpu_lock();
    struct cpu_op *op = cpu_op_event(kind, event);
    if (op && !stream->capture && kind == CPU_OP_RECORD) {
        event->capture = NULL;
        event->recorded++;
    }
    if (op)
        op->version = event->recorded;
    cpu_unlock();
    return op ? cpu_submit(stream, op) : cpu_remember(CPU_NO_MEMORY);
}

int tern_cpu_event_record(event_t *event, stream_t *stream)
{
    return event_op(cpu_stream(stream), event, CPU_OP_RECORD);
}

int tern_cpu_stream_wait_event(stream_t *stream, event_t *event)
{
    stream = cpu_stream(stream);
    cpu_lock();
    if (event && event->capture && !stream->capture)    /* the stream joins the capture */
        stream->capture = event->capture;
    cpu_unlock();
    return event_op(stream, event, CPU_OP_WAIT);
}

int tern_cpu_event_synchronize(event_t *event)
{
    if (!event)
        return cpu_remember(CPU_INVALID_HANDLE);
    cpu_lock();
    event->references++;
    for (uint64_t version = event->recorded; event->done < version;)
        progress_wait();
    cpu_event_release(event);
    int error = cpu_device.error;
    cpu_unlock();
    return cpu_remember(error);
}

int tern_cpu_event_query(event_t *event)
{
    if (!event)
        return cpu_remember(CPU_INVALID_HANDLE);
    cpu_lock();
    int error = cpu_device.error ? cpu_device.error : event->done < event->recorded ? CPU_NOT_READY : CPU_OK;
    cpu_unlock();
    return error == CPU_NOT_READY ? error : cpu_remember(error);
}

int tern_cpu_event_elapsed(float *ms, event_t *start, event_t *end)
{
    if (!start || !end || !ms)
        return cpu_remember(CPU_INVALID_HANDLE);
    cpu_lock();
    int error = CPU_OK;
    if (!start->recorded || !end->recorded)
        error = CPU_INVALID_HANDLE;
    else if (start->done < start->recorded || end->done < end->recorded)
        error = CPU_NOT_READY;
    else
        *ms = (float)((double)(int64_t)(end->ns - start->ns) * 1e-6);
    cpu_unlock();
    return cpu_remember(error);
}
