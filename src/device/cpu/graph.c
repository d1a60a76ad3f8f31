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

static void graph_free(graph_t *graph)
{
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

int tern_cpu_graph_instantiate(graph_t **exec, graph_t *graph)
{
    if (!exec || !graph)
        return cpu_remember(CPU_INVALID_VALUE);
    graph_t *copy = calloc(1, sizeof *copy);
    if (!copy)
        return cpu_remember(CPU_NO_MEMORY);
    for (const struct cpu_op *op = graph->head; op; op = op->next) {
        struct cpu_op *twin = cpu_op_copy(op);
        if (!twin) {
            graph_free(copy);
            return cpu_remember(CPU_NO_MEMORY);
        }
        graph_append(copy, twin);
    }
    *exec = copy;
    return CPU_OK;
}

int tern_cpu_graph_launch(graph_t *exec, stream_t *stream)
{
    graph_t *run = NULL;
    int error = tern_cpu_graph_instantiate(&run, exec);
    if (error)
        return error;
    stream = cpu_stream(stream);
    cpu_lock();
    if (stream->capture)
        error = CPU_CAPTURE_UNSUPPORTED;
    else if (cpu_device.error)
        error = cpu_device.error;
    for (struct cpu_op *op = run->head, *next; !error && op; op = next) {
        next = op->next;
        cpu_submit_locked(stream, op);
        run->head = next;
    }
    if (!error)
        cpu_dispatch_locked();
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
