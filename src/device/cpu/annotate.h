/*
 * annotate.h - what fiber code tells the sanitizers. The files that include it are compiled without -fsanitize, with
 * TERN_FIBER_ASAN or TERN_FIBER_TSAN defined in such builds: an instrumented scheduler would report itself.
 */
#ifndef TERN_CPU_ANNOTATE_H
#define TERN_CPU_ANNOTATE_H

#include <stddef.h>

#ifdef TERN_FIBER_ASAN
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom_old, size_t *size_old);
void __asan_poison_memory_region(void const volatile *p, size_t bytes);
void __asan_unpoison_memory_region(void const volatile *p, size_t bytes);
#define annotate_poison(p, bytes) __asan_poison_memory_region(p, bytes)
#define annotate_unpoison(p, bytes) __asan_unpoison_memory_region(p, bytes)
#else
#define annotate_poison(p, bytes) ((void)(p), (void)(bytes))
#define annotate_unpoison(p, bytes) ((void)(p), (void)(bytes))
#endif

#ifdef TERN_FIBER_TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_set_fiber_name(void *fiber, const char *name);
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define ANNOTATE_NO_SYNC 1u             /* a switch alone orders nothing: a missing __syncthreads must show */
#define annotate_acquire(object) __tsan_acquire(object)
#define annotate_release(object) __tsan_release(object)
#else
#define annotate_acquire(object) ((void)(object))
#define annotate_release(object) ((void)(object))
#endif

#endif
