/*
 * dump.c - tern_dump and the signal of TERN_DUMP_SIGNAL. The handler only notes that the signal has come, in a
 * descriptor that the control thread reads; that thread writes the dump.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/control.h"
#include "host/fork.h"
#include "proxy/proxy.h"

/* One runtime a process, hence one signal. */
static _Atomic int noted_fd = -1;
static struct sigaction before;

static void dump_note(int number)
{
    int saved = errno, fd = atomic_load(&noted_fd);
    uint64_t one = 1;
    (void)number;
    if (fd >= 0) {
        ssize_t n = write(fd, &one, sizeof one);
        (void)n;
    }
    errno = saved;
}

/* Signals that tell a thread of its own fault: a handler that returns would let it happen again, for ever. */
static bool own_fault(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGTRAP ||
           number == SIGABRT || number == SIGSYS;
}

void tern_dump_write(struct tern_rt *rt, const char *why)
{
    if (rt->proxy)
        tern_proxy_dump(rt, why);
    else
        tern_log(TERN_LOG_WARN, "dump (%s): no operation of this job goes through a proxy", why);
}

tern_status_t tern_dump(void)
{
    tern_status_t status;
    struct tern_rt *rt = tern_rt_current;

    if (!rt) {
        tern_rt_enter("tern_dump", &status);
        return status;
    }
    tern_dump_write(rt, "tern_dump"); /* in an aborted job too: that is when it is of use */
    return TERN_OK;
}

tern_status_t tern_dump_open(struct tern_rt *rt)
{
    struct tern_control *c = rt->control;
    struct sigaction action = {.sa_handler = dump_note, .sa_flags = SA_RESTART};
    int number = (int)rt->env.dump_signal;

    if (!number)
        return TERN_OK;
    if (own_fault(number) || sigaction(number, NULL, &before))
        return tern_error(TERN_ERR_CONFIG,
                          "TERN_DUMP_SIGNAL=%d cannot be used: %s; take another, for example %d (SIGUSR1)", number,
                          own_fault(number) ? "it tells of a crash" : strerror(errno), SIGUSR1);
    tern_fork_begin();
    c->dump.fd = tern_fork_end(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (c->dump.fd < 0 || !tern_control_watch_fd(c, &c->dump, EPOLLIN))
        return tern_error(TERN_ERR_SYSTEM, "cannot watch for TERN_DUMP_SIGNAL: %s; raise the limit on open files",
                          strerror(errno));
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        tern_log(TERN_LOG_WARN, "TERN_DUMP_SIGNAL=%d takes the place of the program's own handler until tern_finalize",
                 number);
    atomic_store(&noted_fd, c->dump.fd);
    sigemptyset(&action.sa_mask);
    if (!sigaction(number, &action, NULL))
        return TERN_OK;
    atomic_store(&noted_fd, -1);
    return tern_error(TERN_ERR_CONFIG, "TERN_DUMP_SIGNAL=%d cannot be used: %s; take another, for example %d (SIGUSR1)",
                      number, strerror(errno), SIGUSR1);
}

void tern_dump_close(struct tern_rt *rt)
{
    struct sigaction now;
    int number = (int)rt->env.dump_signal;

    if (atomic_exchange(&noted_fd, -1) >= 0 && !sigaction(number, NULL, &now) && now.sa_handler == dump_note)
        sigaction(number, &before, NULL);
}
