/* log.h - the log (TERN_LOG, to stderr or TERN_LOG_FILE) and the calling thread's last error. */
#ifndef TERN_HOST_LOG_H
#define TERN_HOST_LOG_H

#include <stdarg.h>
#include <stdatomic.h>
#include <tern/types.h>

enum tern_log_level { TERN_LOG_NONE, TERN_LOG_ERROR, TERN_LOG_WARN, TERN_LOG_INFO, TERN_LOG_DEBUG, TERN_LOG_TRACE };

/* Log to `file` (%p: PE, %h: host; empty: stderr) as PE `pe` (-1: not known yet). TERN_ERR_CONFIG if it cannot be
 * written. */
tern_status_t tern_log_open(enum tern_log_level level, const char *file, int pe);
void tern_log_close(void); /* back to stderr, at the same level */
extern _Atomic int tern_log_level;
/* One line (made of one write): time, PE, level, text. Any thread. */
void tern_log_write(enum tern_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define tern_log(level, ...)                                                                                           \
    do {                                                                                                               \
        if ((int)(level) <= atomic_load_explicit(&tern_log_level, memory_order_relaxed))                               \
            tern_log_write((level), __VA_ARGS__);                                                                      \
    } while (0)

/*
 * Decide an error: remember the sentence (cause and remedy) for tern_last_error(), log it once, return `status`:
 *   return tern_error(TERN_ERR_SYSTEM, "cannot map %zu bytes: %s; raise the limit on locked memory", n,
 * strerror(errno)); Callers that only hand a status on say nothing.
 */
tern_status_t tern_error(tern_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));
tern_status_t tern_verror(tern_status_t status, const char *format, va_list args);

#endif
