/*
 * control_message.c - what the control thread tells this PE's proxy: messages of other proxies (and their sending),
 * deaths, wishes for a dump. All is noted under the lock and told at the end of the thread's turn without it, so that
 * whoever is told may send.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/control.h"

struct tern_letter { /* a message that has come in */
    struct tern_letter *next;
    int from;
    size_t bytes;
    char body[];
};

static bool letter_put(struct tern_control *c, int from, const void *body, size_t bytes)
{
    struct tern_letter *letter = malloc(sizeof *letter + bytes);
    if (!letter)
        return false;
    letter->next = NULL;
    letter->from = from;
    letter->bytes = bytes;
    if (bytes)
        memcpy(letter->body, body, bytes);
    *c->letters_tail = letter;
    c->letters_tail = &letter->next;
    return true;
}

static void letters_free(struct tern_letter *letter)
{
    while (letter) {
        struct tern_letter *next = letter->next;
        free(letter);
        letter = next;
    }
}

static void thread_wake(struct tern_control *c)
{
    uint64_t one = 1;
    ssize_t n = write(c->wake.fd, &one, sizeof one);
    (void)n;
}

void tern_message_received(struct tern_control *c, int pe, const char *body, size_t bytes)
{
    if (!letter_put(c, pe, body, bytes)) /* somebody would wait for an answer for ever */
        tern_abort_raise(c, TERN_ERR_NO_MEMORY, c->rt->pe, -1, "no host memory for a message between proxies");
}

void tern_message_free(struct tern_control *c)
{
    letters_free(c->letters);
    c->letters = NULL;
}

tern_status_t tern_control_message(struct tern_rt *rt, int pe, const void *body, size_t bytes)
{
    struct tern_control *c = rt->control;
    struct tern_link *link = &c->links[pe];
    char name[128];
    tern_status_t status = TERN_OK;

    pthread_mutex_lock(&c->lock);
    if (bytes > TERN_MESSAGE_MOST) {
        status = tern_error(TERN_ERR_INVALID, "a message of %zu bytes is too long; split it: at most %d", bytes,
                            TERN_MESSAGE_MOST);
    } else if (atomic_load(&rt->abort)) {
        status = tern_error(tern_abort_status(rt), "the job was aborted: %s; call tern_finalize", rt->abort_reason);
    } else if (link->dead || link->left) {
        status = tern_error(TERN_ERR_PEER_DEAD, "cannot send a message to %s: it %s",
                            tern_link_name(c, pe, name, sizeof name), link->dead ? "is dead" : "has left the job");
    } else if (pe == rt->pe ? !letter_put(c, pe, body, bytes)
                            : !tern_conn_send(c, pe, TERN_FRAME_MESSAGE, NULL, 0, body, bytes, NULL, 0)) {
        status =
            tern_error(TERN_ERR_NO_MEMORY,
                       "no host memory for a message of %zu bytes to PE %d, or no address of it; free some", bytes, pe);
    } else if (pe == rt->pe) {
        thread_wake(c);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

void tern_control_deliver(struct tern_rt *rt, const struct tern_control_calls *calls)
{
    struct tern_control *c = rt->control;

    pthread_mutex_lock(&c->lock);
    c->calls = calls;
    while (!calls && c->telling)
        pthread_cond_wait(&c->cond, &c->lock);
    pthread_mutex_unlock(&c->lock);
    if (calls) /* for what has come before */
        thread_wake(c);
}

bool tern_tell_due(const struct tern_control *c)
{
    return c->calls && (c->letters || c->tell_deaths || c->tell_dump);
}

static int death_next(struct tern_control *c)
{
    for (int pe = 0; c->tell_deaths && pe < c->rt->n_pes; pe++) {
        if (!c->links[pe].tell_death)
            continue;
        c->links[pe].tell_death = false;
        c->tell_deaths--;
        return pe;
    }
    return -1;
}

/* What a PE sent comes before its death: both are taken from under the same lock, and after a death nothing comes. */
void tern_tell(struct tern_control *c)
{
    const struct tern_control_calls *calls;

    pthread_mutex_lock(&c->lock);
    while (tern_tell_due(c)) {
        struct tern_letter *letters = c->letters;
        bool dump = c->tell_dump;
        int dead;

        calls = c->calls;
        c->letters = NULL;
        c->letters_tail = &c->letters;
        dead = letters ? -1 : death_next(c);
        c->tell_dump = false;
        c->telling = true;
        pthread_mutex_unlock(&c->lock);
        for (struct tern_letter *letter = letters; letter; letter = letter->next)
            calls->message(c->rt, letter->from, letter->body, letter->bytes);
        letters_free(letters);
        if (dead >= 0)
            calls->dead(c->rt, dead);
        if (dump)
            calls->dump(c->rt, "the signal of TERN_DUMP_SIGNAL has come");
        pthread_mutex_lock(&c->lock);
        c->telling = false;
        pthread_cond_broadcast(&c->cond);
    }
    pthread_mutex_unlock(&c->lock);
}

void tern_tell_death(struct tern_control *c, int pe)
{
    if (c->links[pe].tell_death)
        return;
    c->links[pe].tell_death = true;
    c->tell_deaths++;
    thread_wake(c); /* a death may be found by another thread */
}
