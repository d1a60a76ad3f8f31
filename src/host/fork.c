/* fork.c - the registry of descriptors that a forked child closes at once. */
#include "host/fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static unsigned char *registered; /* one bit per descriptor */
static int registered_bytes;

static void fork_prepare(void)
{
    pthread_mutex_lock(&registry_lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&registry_lock);
}

static void fork_child(void)
{
    for (int fd = 0; fd < registered_bytes * 8; fd++) {
        if (registered[fd / 8] >> fd % 8 & 1)
            close(fd);
    }
    for (int i = 0; i < registered_bytes; i++)
        registered[i] = 0;
    pthread_mutex_unlock(&registry_lock);
}

static void registry_init(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void tern_fork_begin(void)
{
    pthread_once(&registry_once, registry_init);
    pthread_mutex_lock(&registry_lock);
}

int tern_fork_end(int fd)
{
    int saved = errno;
    if (fd >= registered_bytes * 8) {
        int bytes = fd / 8 + 64;
        unsigned char *grown = realloc(registered, (size_t)bytes);
        if (grown) {
            for (int i = registered_bytes; i < bytes; i++)
                grown[i] = 0;
            registered = grown;
            registered_bytes = bytes;
        } else {
            close(fd);
            fd = -1;
            saved = ENOMEM;
        }
    }
    if (fd >= 0)
        registered[fd / 8] |= (unsigned char)(1u << fd % 8);
    pthread_mutex_unlock(&registry_lock);
    errno = saved;
    return fd;
}

void tern_fork_close(int fd)
{
    if (fd < 0)
        return;
    pthread_mutex_lock(&registry_lock);
    registered[fd / 8] &= (unsigned char)~(1u << fd % 8);
    close(fd);
    pthread_mutex_unlock(&registry_lock);
}
