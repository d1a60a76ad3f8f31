/*
 * graph.c - stream capture and graphs. A graph is the list of its operations in the order of capture, which is an order
 * that CUDA's semantics allow; a launch gives them to the stream one after another. Streams that wait for an event of a
 * captured stream join its capture, and must be waited for by the first stream before the capture ends.
 */
#include <stdlib.h>

#include "device/cpu/device.h"
#include <tern/detail/cpu_api.h>

typedef struct tern_cpu_stream stream_t;
typedef struct tern_cpu_graph graph_t;

static void graph_append(graph_t *graph, struct cpu_op *op)
{
    op->next = NULL;
    if (graph->tail)
        graph->tail->next = op;
    else
        graph->head = op;
    graph->tail = op;
}

/* With the lock held. */
static void graph_free(graph_t *graph)
{
    if (graph->ended)
        cpu_event_release(graph->ended);
    for (struct cpu_op *op = graph->head, *next; op; op = next) {
        next = op->next;
        cpu_op_free(op);
    }
    free(graph);
}

int cpu_capture_add_locked(stream_t *stream, struct cpu_op *op)
{
    graph_t *graph = stream->capture;
    struct tern_cpu_event *event = op->event;
    if (op->kind == CPU_OP_RECORD) {    /* an event inside of a capture only carries order */
        event->capture = graph;
        event->from = stream;
        event->captured = stream->captured;
        cpu_op_free(op);
    } else if (op->kind == CPU_OP_WAIT) {
        bool mine = event->capture == graph;
        if (mine && event->from != stream && event->captured == event->from->captured) {
            event->from->captured = 0;  /* all that it has captured is joined */
            event->captured = 0;
            stream->captured += stream != graph->origin;
        }
        if (!mine) {                    /* an event from outside of the capture cannot be waited for in a graph */
            graph->invalid = true;
            return CPU_CAPTURE_INVALIDATED;
        }
        cpu_op_free(op);
    } else {
        stream->captured++;
        graph_append(graph, op);
    }
    return CPU_OK;
}

int tern_cpu_capture_begin(stream_t *stream)
{
    stream = cpu_stream(stream);
    if (stream == &cpu_device.standard)
        return cpu_remember(CPU_CAPTURE_UNSUPPORTED);
    graph_t *graph = calloc(1, sizeof *graph);
    if (!graph)
        return cpu_remember(CPU_NO_MEMORY);
    cpu_lock();
    bool busy = stream->capture;
    if (!busy) {
        graph->origin = stream;
        stream->capture = graph;
        stream->captured = 0;
    }
    cpu_unlock();
    if (busy)
        free(graph);
    return cpu_remember(busy ? CPU_CAPTURE_UNMATCHED : CPU_OK);
}

int tern_cpu_capture_end(stream_t *stream, graph_t **result)
{
    stream = cpu_stream(stream);
    *result = NULL;
    cpu_lock();
    graph_t *graph = stream->capture;
    int error = CPU_OK;
    if (!graph || graph->origin != stream) {
        cpu_unlock();
        return cpu_remember(CPU_CAPTURE_UNMATCHED);
    }
    if (graph->invalid)
        error = CPU_CAPTURE_INVALIDATED;
    for (stream_t *s = cpu_device.streams; s; s = s->next)
        if (s->capture == graph) {
            if (!error && s != stream && s->captured)
                error = CPU_CAPTURE_UNJOINED;
            s->capture = NULL;
            s->captured = 0;
        }
    graph->origin = NULL;
    if (error)
        graph_free(graph);
    else
        *result = graph;
    cpu_unlock();
    return cpu_remember(error);
}

int tern_cpu_capture_status(stream_t *stream, int *status)
{
    stream = cpu_stream(stream);
    cpu_lock();
    *status = !stream->capture ? 0 : stream->capture->invalid ? 2 : 1;
    cpu_unlock();
    return CPU_OK;
}

/* A copy of the graph's operations, or NULL. */
static graph_t *graph_copy(const graph_t *graph)
{
    graph_t *copy = calloc(1, sizeof *copy);
    for (const struct cpu_op *op = graph->head; copy && op; op = op->next) {
        struct cpu_op *twin = cpu_op_copy(op);
        if (!twin) {
            graph_free(copy);
            return NULL;
        }
        graph_append(copy, twin);
    }
    return copy;
}

int tern_cpu_graph_instantiate(graph_t **exec, graph_t *graph)
{
    if (!exec || !graph)
        return cpu_remember(CPU_INVALID_VALUE);
    cpu_lock();
    *exec = graph_copy(graph);
    cpu_unlock();
    if (*exec && tern_cpu_event_create(&(*exec)->ended)) {
        (void)tern_cpu_graph_destroy(*exec);
        *exec = NULL;
    }
    return *exec ? CPU_OK : cpu_remember(CPU_NO_MEMORY);
}

int tern_cpu_graph_launch(graph_t *exec, stream_t *stream)
{
    if (!exec || !exec->ended)
        return cpu_remember(CPU_INVALID_VALUE);
    stream = cpu_stream(stream);
    cpu_lock();
    graph_t *run = graph_copy(exec);
    struct cpu_op *before = cpu_op_event(CPU_OP_WAIT, exec->ended), *behind = cpu_op_event(CPU_OP_RECORD, exec->ended);
    int error = stream->capture ? CPU_CAPTURE_UNSUPPORTED : cpu_device.error;
    if (!error && (!run || !before || !behind))
        error = CPU_NO_MEMORY;
    if (!error) {
        before->version = exec->ended->recorded;
        behind->version = ++exec->ended->recorded;
        cpu_submit_locked(stream, before);
        for (struct cpu_op *op = run->head, *next; op; op = next) {
            next = op->next;
            cpu_submit_locked(stream, op);
        }
        run->head = NULL;
        cpu_submit_locked(stream, behind);
        cpu_dispatch_locked();
    } else {
        if (before)
            cpu_op_free(before);
        if (behind)
            cpu_op_free(behind);
    }
    if (run)
        graph_free(run);
    cpu_unlock();
    return cpu_remember(error);
}

int tern_cpu_graph_destroy(graph_t *graph)
{
    if (!graph)
        return cpu_remember(CPU_INVALID_VALUE);
    cpu_lock();
    graph_free(graph);
    cpu_unlock();
    return CPU_OK;
}
