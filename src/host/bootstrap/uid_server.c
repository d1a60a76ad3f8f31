/*
 * uid_server.c - tern_get_unique_id and the thread behind it, which lets the PEs of one start meet. It ends when all
 * have what they came for, or TERN_TIMEOUT_MS after the first of them came. Who does not know the token is ignored.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/bootstrap/uid.h"
#include "host/fork.h"

#define STRANGER_MS 5000
#define MAX_STRANGERS 1024
#define LAST_WORDS_MS 1000 /* to hand out a failure */

struct client {
    int fd, pe; /* pe -1: has not shown the token */
    uint64_t came_ns;
    char *in;
    size_t in_bytes, in_want;
    char *out;
    size_t out_bytes, out_sent;
};

struct server {
    struct server *next; /* of all in this process */
    int listener;
    unsigned char token[16];
    uint64_t timeout_ns, deadline_ns; /* deadline 0: nobody has come yet */
    int n_pes, known, blobs_in;       /* n_pes 0: not known yet */
    uint32_t blob_bytes;
    struct client *clients;
    struct pollfd *polls;
    int n_clients, space;
    struct tern_place *places;
    char *blobs;
    bool failed;
};

static pthread_mutex_t servers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct server *servers; /* a process that exits still points to what their threads use */

static void client_drop(struct server *s, int i)
{
    struct client *client = &s->clients[i];
    tern_fork_close(client->fd);
    free(client->in);
    free(client->out);
    s->clients[i] = s->clients[--s->n_clients];
}

static void client_add(struct server *s, int fd)
{
    if (s->n_clients == s->space) {
        int space = s->space ? s->space * 2 : 64;
        struct client *grown = realloc(s->clients, sizeof *grown * (size_t)space);
        if (!grown) {
            tern_fork_close(fd);
            return;
        }
        s->clients = grown;
        s->space = space;
    }
    struct client *client = &s->clients[s->n_clients];
    *client = (struct client){.fd = fd, .pe = -1, .came_ns = tern_now_ns(), .in_want = sizeof(struct tern_uid_hello)};
    client->in = malloc(client->in_want);
    s->n_clients++;
    if (!client->in)
        client_drop(s, s->n_clients - 1);
}

static void client_answer(struct client *client, tern_status_t status, const void *body, size_t bytes)
{
    struct tern_uid_answer answer = {(int32_t)status, (uint32_t)bytes};
    char *out = malloc(sizeof answer + bytes);
    if (!out)
        return; /* the PE's own deadline ends it */
    memcpy(out, &answer, sizeof answer);
    memcpy(out + sizeof answer, body, bytes);
    free(client->out);
    client->out = out;
    client->out_bytes = sizeof answer + bytes;
    client->out_sent = 0;
}

/* Tell all PEs that came why the meeting failed. */
static void meeting_fail(struct server *s, tern_status_t status, const char *text)
{
    if (s->failed)
        return;
    s->failed = true;
    s->deadline_ns = tern_now_ns() + LAST_WORDS_MS * 1000000ull;
    for (int i = 0; i < s->n_clients; i++) {
        if (s->clients[i].pe >= 0)
            client_answer(&s->clients[i], status, text, strlen(text));
    }
}

static void answer_all(struct server *s, const void *table, size_t bytes)
{
    for (int i = 0; i < s->n_clients; i++) {
        if (s->clients[i].pe >= 0)
            client_answer(&s->clients[i], TERN_OK, table, bytes);
    }
}

static struct client *client_of(struct server *s, int pe)
{
    for (int i = 0; i < s->n_clients; i++) {
        if (s->clients[i].pe == pe)
            return &s->clients[i];
    }
    return NULL;
}

/* False: not one of ours. */
static bool hello_take(struct server *s, struct client *client)
{
    struct tern_uid_hello hello;
    unsigned char difference = 0;
    char text[256];

    memcpy(&hello, client->in, sizeof hello);
    for (size_t i = 0; i < sizeof hello.token; i++)
        difference |= hello.token[i] ^ s->token[i];
    if (hello.magic != TERN_UID_MAGIC || difference || hello.n_pes < 1 || hello.pe < 0 || hello.pe >= hello.n_pes)
        return false;
    if (!s->n_pes) {
        s->n_pes = hello.n_pes;
        s->blob_bytes = hello.blob_bytes;
        s->deadline_ns = tern_now_ns() + s->timeout_ns;
        s->places = calloc((size_t)s->n_pes, sizeof *s->places);
        s->blobs = hello.blob_bytes <= 1u << 16 ? calloc((size_t)s->n_pes, s->blob_bytes) : NULL;
    }
    struct client *other = client_of(s, hello.pe);
    client->pe = hello.pe;
    if (s->failed)
        return false;
    if (!s->places || !s->blobs) {
        meeting_fail(s, TERN_ERR_NO_MEMORY, "the PE that made the unique id has no host memory left");
    } else if (other) {
        snprintf(text, sizeof text, "two processes came as PE %d with the same unique id; give each its own number",
                 hello.pe);
        meeting_fail(s, TERN_ERR_INVALID, text);
    } else if (hello.n_pes != s->n_pes) {
        snprintf(text, sizeof text, "PE %d says there are %d PEs, another PE said %d; all must say the same", hello.pe,
                 hello.n_pes, s->n_pes);
        meeting_fail(s, TERN_ERR_INVALID, text);
    } else if (hello.blob_bytes != s->blob_bytes) {
        snprintf(text, sizeof text, "PE %d has another library version than the first PE that came; use one on all PEs",
                 hello.pe);
        meeting_fail(s, TERN_ERR_VERSION, text);
    } else {
        s->places[hello.pe] = hello.place;
        free(client->in);
        client->in_want = s->blob_bytes;
        client->in_bytes = 0;
        client->in = malloc(client->in_want);
        if (++s->known == s->n_pes)
            answer_all(s, s->places, sizeof *s->places * (size_t)s->n_pes);
        return client->in != NULL;
    }
    return true;
}

static void blob_take(struct server *s, struct client *client)
{
    memcpy(s->blobs + (size_t)client->pe * s->blob_bytes, client->in, s->blob_bytes);
    client->in_want = 0;
    if (++s->blobs_in == s->n_pes)
        answer_all(s, s->blobs, (size_t)s->blob_bytes * (size_t)s->n_pes);
}

/* False: the connection is of no more use. */
static bool client_read(struct server *s, struct client *client)
{
    char surplus;
    for (;;) {
        size_t room = client->in_want - client->in_bytes;
        ssize_t n = recv(client->fd, room ? client->in + client->in_bytes : &surplus, room ? room : 1, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0 || !room)
            return false;
        client->in_bytes += (size_t)n;
        if (client->in_bytes < client->in_want)
            continue;
        if (client->pe >= 0)
            blob_take(s, client);
        else if (!hello_take(s, client))
            return false;
        if (s->failed)
            return true;
    }
}

static bool client_write(struct client *client)
{
    while (client->out_sent < client->out_bytes) {
        ssize_t n =
            send(client->fd, client->out + client->out_sent, client->out_bytes - client->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        client->out_sent += (size_t)n;
    }
    return true;
}

/* A PE closed its connection: fine once it has all blobs. */
static void client_gone(struct server *s, int i)
{
    int pe = s->clients[i].pe;
    bool served = s->n_pes && s->blobs_in == s->n_pes && s->clients[i].out_sent == s->clients[i].out_bytes;
    char text[128];
    client_drop(s, i);
    if (pe < 0 || served)
        return;
    snprintf(text, sizeof text, "PE %d ended before all PEs had met; see its own message", pe);
    meeting_fail(s, TERN_ERR_BOOTSTRAP, text);
}

static void missing_tell(struct server *s)
{
    char text[400];
    int told = 0;
    size_t used = (size_t)snprintf(text, sizeof text, "PE");
    for (int pe = 0; pe < s->n_pes; pe++) {
        struct client *client = client_of(s, pe);
        if (client && !(s->known == s->n_pes && client->in_want))
            continue;
        if (told++ < 16)
            used += (size_t)snprintf(text + used, sizeof text - used, " %d", pe);
    }
    snprintf(text + used, sizeof text - used,
             "%s not come within %llu ms (%d of %d PEs are there); see that every PE calls "
             "tern_init_attr with the same id, or raise TERN_TIMEOUT_MS",
             told > 16  ? " and others have"
             : told > 1 ? " have"
                        : " has",
             (unsigned long long)(s->timeout_ns / 1000000u), s->n_pes - told, s->n_pes);
    meeting_fail(s, TERN_ERR_TIMEOUT, text);
}

static void accept_all(struct server *s)
{
    for (;;) {
        tern_fork_begin();
        int fd = tern_fork_end(accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0)
            return;
        if (s->n_clients - s->known >= MAX_STRANGERS)
            tern_fork_close(fd);
        else
            client_add(s, fd);
    }
}

/* One turn; false when the meeting is over. */
static bool serve(struct server *s)
{
    uint64_t now = tern_now_ns();
    int n = s->n_clients;
    struct pollfd *polls = realloc(s->polls, ((size_t)n + 1) * sizeof *polls);
    bool over;

    if (!polls)
        return false;
    s->polls = polls;
    for (int i = 0; i < n; i++) {
        struct client *client = &s->clients[i];
        polls[i] =
            (struct pollfd){client->fd, (short)(POLLIN | (client->out_sent < client->out_bytes ? POLLOUT : 0)), 0};
    }
    polls[n] = (struct pollfd){s->listener, POLLIN, 0};
    poll(polls, (nfds_t)n + 1, n ? 100 : -1);
    for (int i = n - 1; i >= 0; i--) { /* downwards: a dropped one is replaced by the last, which has been looked at */
        bool good = true;
        if (polls[i].revents & (POLLIN | POLLHUP | POLLERR))
            good = client_read(s, &s->clients[i]);
        if (good)
            good = client_write(&s->clients[i]);
        if (!good)
            client_gone(s, i);
        else if (s->clients[i].pe < 0 && now - s->clients[i].came_ns > STRANGER_MS * 1000000ull)
            client_drop(s, i);
    }
    if (polls[n].revents & POLLIN)
        accept_all(s);

    now = tern_now_ns();
    if (s->deadline_ns && now >= s->deadline_ns) {
        if (s->failed)
            return false;
        missing_tell(s);
    }
    over = s->failed || (s->n_pes && s->blobs_in == s->n_pes);
    for (int i = 0; over && i < s->n_clients; i++)
        over = s->clients[i].pe < 0 || (s->clients[i].out_bytes && s->clients[i].out_sent == s->clients[i].out_bytes);
    return !over;
}

static void server_free(struct server *s)
{
    pthread_mutex_lock(&servers_lock);
    for (struct server **p = &servers; *p; p = &(*p)->next) {
        if (*p == s) {
            *p = s->next;
            break;
        }
    }
    pthread_mutex_unlock(&servers_lock);
    while (s->n_clients)
        client_drop(s, 0);
    tern_fork_close(s->listener);
    free(s->clients);
    free(s->polls);
    free(s->places);
    free(s->blobs);
    free(s);
}

static void *server_thread(void *arg)
{
    struct server *s = arg;
    pthread_setname_np(pthread_self(), "tern-meeting");
    while (serve(s))
        ;
    server_free(s);
    return NULL;
}

static tern_status_t server_start(struct server *s)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;

    pthread_mutex_lock(&servers_lock);
    s->next = servers;
    servers = s;
    pthread_mutex_unlock(&servers_lock);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&thread, &attr, server_thread, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (error)
        return tern_error(TERN_ERR_SYSTEM,
                          "cannot start the thread that lets the PEs meet: %s; raise the limit on processes",
                          strerror(error));
    return TERN_OK;
}

tern_status_t tern_get_unique_id(tern_unique_id_t *id)
{
    struct tern_uid uid;
    struct tern_place place;
    struct tern_env env;
    struct server *s;
    tern_status_t status;

    if (!id)
        return tern_error(TERN_ERR_INVALID,
                          "tern_get_unique_id: the id is NULL; pass the address of a tern_unique_id_t");
    status = tern_env_load(&env);
    uint64_t timeout_ns = (uint64_t)env.timeout_ms * 1000000u;
    tern_env_unload(&env);
    if (status != TERN_OK)
        return status;
    memset(&uid, 0, sizeof uid);
    s = calloc(1, sizeof *s);
    if (!s)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the PEs' meeting; free some");
    s->timeout_ns = timeout_ns;
    s->listener = tern_net_listen(&uid.port);
    if (s->listener < 0) {
        status =
            tern_error(TERN_ERR_SYSTEM, "cannot listen on TCP: %s; raise the limit on open files", strerror(errno));
        goto err_server;
    }
    status = tern_random_bytes(s->token, sizeof s->token);
    if (status != TERN_OK)
        goto err_server;
    tern_place_own(&place);
    uid.magic = TERN_UID_MAGIC;
    uid.addresses = (uint16_t)tern_net_addresses(uid.addr, TERN_UID_ADDRESSES);
    uid.boot = place.boot;
    uid.netns = place.netns;
    memcpy(uid.token, s->token, sizeof uid.token);
    status = server_start(s);
    if (status != TERN_OK)
        goto err_server;
    memset(id, 0, sizeof *id);
    memcpy(id, &uid, sizeof uid);
    return TERN_OK;
err_server:
    server_free(s);
    return status;
}
