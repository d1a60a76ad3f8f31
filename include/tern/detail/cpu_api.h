/* tern/detail/cpu_api.h - the functions of the CPU device under the wrappers of cpu_runtime.h. Private. */
#ifndef TERN_DETAIL_CPU_API_H
#define TERN_DETAIL_CPU_API_H

#include <stddef.h>
#include <tern/types.h>
#include <tern/detail/cpu_abi.h>

struct tern_cpu_stream;
struct tern_cpu_event;
struct tern_cpu_graph;

#ifdef __cplusplus
extern "C" {
#endif

/* Each returns a cudaError. What fails is remembered per thread for tern_cpu_last_error(). */
TERN_CPU_API int tern_cpu_malloc(void **p, size_t bytes);
TERN_CPU_API int tern_cpu_free(void *p);
TERN_CPU_API int tern_cpu_free_host(void *p);
TERN_CPU_API int tern_cpu_memcpy(void *dst, const void *src, size_t bytes, struct tern_cpu_stream *stream, int wait);
TERN_CPU_API int tern_cpu_memset(void *dst, int value, size_t bytes, struct tern_cpu_stream *stream, int wait);
TERN_CPU_API int tern_cpu_launch(const void *kernel, tern_cpu_dim_t grid, tern_cpu_dim_t block, void **args, size_t smem,
                                 struct tern_cpu_stream *stream);
/* The same for tern_launch(): a tern_status_t, with a sentence for tern_last_error(). */
TERN_CPU_API tern_status_t tern_cpu_launch_status(const void *kernel, tern_cpu_dim_t grid, tern_cpu_dim_t block,
                                                  void **args, size_t smem, tern_stream_t stream);
TERN_CPU_API int tern_cpu_stream_create(struct tern_cpu_stream **stream, unsigned flags);
TERN_CPU_API int tern_cpu_stream_destroy(struct tern_cpu_stream *stream);
TERN_CPU_API int tern_cpu_stream_synchronize(struct tern_cpu_stream *stream);
TERN_CPU_API int tern_cpu_stream_query(struct tern_cpu_stream *stream);
TERN_CPU_API int tern_cpu_stream_wait_event(struct tern_cpu_stream *stream, struct tern_cpu_event *event);
TERN_CPU_API int tern_cpu_event_create(struct tern_cpu_event **event);
TERN_CPU_API int tern_cpu_event_destroy(struct tern_cpu_event *event);
TERN_CPU_API int tern_cpu_event_record(struct tern_cpu_event *event, struct tern_cpu_stream *stream);
TERN_CPU_API int tern_cpu_event_synchronize(struct tern_cpu_event *event);
TERN_CPU_API int tern_cpu_event_query(struct tern_cpu_event *event);
TERN_CPU_API int tern_cpu_event_elapsed(float *ms, struct tern_cpu_event *start, struct tern_cpu_event *end);
TERN_CPU_API int tern_cpu_synchronize(void);
TERN_CPU_API int tern_cpu_last_error(int clear);
TERN_CPU_API const char *tern_cpu_error_string(int error);
TERN_CPU_API int tern_cpu_function_set(const void *kernel, int attribute, int value);
TERN_CPU_API int tern_cpu_attribute(int *value, int attribute);
TERN_CPU_API int tern_cpu_set_device(int device);
TERN_CPU_API int tern_cpu_capture_begin(struct tern_cpu_stream *stream);
TERN_CPU_API int tern_cpu_capture_end(struct tern_cpu_stream *stream, struct tern_cpu_graph **graph);
TERN_CPU_API int tern_cpu_capture_status(struct tern_cpu_stream *stream, int *status);
TERN_CPU_API int tern_cpu_graph_instantiate(struct tern_cpu_graph **exec, struct tern_cpu_graph *graph);
TERN_CPU_API int tern_cpu_graph_launch(struct tern_cpu_graph *exec, struct tern_cpu_stream *stream);
TERN_CPU_API int tern_cpu_graph_destroy(struct tern_cpu_graph *graph);

#ifdef __cplusplus
}
#endif

#endif
