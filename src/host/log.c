/* log.c - the log, the calling thread's last error, names of statuses. */
#include "host/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tern/tern.h>

#define LINE_BYTES 1400
#define ERROR_BYTES 1024

_Atomic int tern_log_level = TERN_LOG_WARN;
static _Atomic int log_fd = STDERR_FILENO;
static _Atomic int log_pe = -1;
static _Thread_local char last_error[ERROR_BYTES];

static const char *const level_names[] = {"none", "error", "warn", "info", "debug", "trace"};

/* TERN_LOG_FILE with %p and %h replaced; false if it does not fit. */
static bool log_file_name(const char *pattern, int pe, char *buf, size_t bytes)
{
    char host[65] = "";
    size_t used = 0;
    gethostname(host, sizeof host - 1);
    for (const char *p = pattern; *p; p++) {
        int n;
        if (p[0] == '%' && p[1] == 'p')
            n = snprintf(buf + used, bytes - used, "%d", pe);
        else if (p[0] == '%' && p[1] == 'h')
            n = snprintf(buf + used, bytes - used, "%s", host);
        else
            n = snprintf(buf + used, bytes - used, "%c", *p);
        if (n < 0 || (size_t)n >= bytes - used)
            return false;
        used += (size_t)n;
        if (p[0] == '%' && (p[1] == 'p' || p[1] == 'h'))
            p++;
    }
    return true;
}

tern_status_t tern_log_open(enum tern_log_level level, const char *file, int pe)
{
    char name[4096];
    int fd = STDERR_FILENO;

    tern_log_close();
    atomic_store(&tern_log_level, (int)level);
    atomic_store(&log_pe, pe);
    if (!file || !*file)
        return TERN_OK;
    if (!log_file_name(file, pe, name, sizeof name))
        return tern_error(TERN_ERR_CONFIG, "TERN_LOG_FILE=%s is too long a name; choose a shorter one", file);
    fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return tern_error(TERN_ERR_CONFIG, "TERN_LOG_FILE=%s: cannot write %s: %s; allowed: a file that can be written",
                          file, name, strerror(errno));
    atomic_store(&log_fd, fd);
    return TERN_OK;
}

void tern_log_close(void)
{
    int fd = atomic_exchange(&log_fd, STDERR_FILENO);
    if (fd != STDERR_FILENO)
        close(fd);
    atomic_store(&log_pe, -1);
}

/* Calls outside of a runtime log too; tern_init checks and reports the variable. */
__attribute__((constructor)) static void log_level_read(void)
{
    const char *text = getenv("TERN_LOG");
    for (int level = TERN_LOG_NONE; text && level <= TERN_LOG_TRACE; level++) {
        if (!strcmp(text, level_names[level]))
            atomic_store(&tern_log_level, level);
    }
}

static void log_vwrite(enum tern_log_level level, const char *format, va_list args)
{
    char line[LINE_BYTES];
    struct timespec now;
    struct tm tm;
    int saved = errno, pe = atomic_load(&log_pe);
    size_t used;

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    used = strftime(line, sizeof line, "%H:%M:%S", &tm);
    used += (size_t)snprintf(line + used, sizeof line - used, ".%06ld tern ", now.tv_nsec / 1000);
    if (pe >= 0)
        used += (size_t)snprintf(line + used, sizeof line - used, "PE %d ", pe);
    used += (size_t)snprintf(line + used, sizeof line - used, "%s: ", level_names[level]);
    int n = vsnprintf(line + used, sizeof line - used - 1, format, args);
    if (n > 0)
        used += (size_t)n < sizeof line - used - 1 ? (size_t)n : sizeof line - used - 2;
    line[used++] = '\n';
    /* a log that cannot be written must not stop the program */
    ssize_t written = write(atomic_load(&log_fd), line, used);
    (void)written;
    errno = saved;
}

void tern_log_write(enum tern_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_vwrite(level, format, args);
    va_end(args);
}

tern_status_t tern_verror(tern_status_t status, const char *format, va_list args)
{
    char text[ERROR_BYTES]; /* the arguments may be the last error itself */
    vsnprintf(text, sizeof text, format, args);
    memcpy(last_error, text, sizeof last_error);
    tern_log(TERN_LOG_ERROR, "%s: %s", tern_status_name(status), text);
    return status;
}

tern_status_t tern_error(tern_status_t status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tern_verror(status, format, args);
    va_end(args);
    return status;
}

const char *tern_last_error(void)
{
    return last_error;
}

const char *tern_status_name(tern_status_t status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                                                 \
    case name:                                                                                                         \
        return #name;
        TERN_STATUS_TABLE(STATUS_NAME)
#undef STATUS_NAME
    }
    return "unknown status";
}

const char *tern_status_text(tern_status_t status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                                                 \
    case name:                                                                                                         \
        return text;
        TERN_STATUS_TABLE(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "not a status of this library";
}
