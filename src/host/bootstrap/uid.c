/*
 * uid.c - the bootstrap of programs with a launcher of their own: one PE makes an id (tern_get_unique_id), the program
 * hands it to all, and they meet at the maker, whose thread (uid_server.c) answers: hello with token -> who shares
 * which place; blob -> all blobs. This file is the side of the PEs.
 */
#include "host/bootstrap/uid.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/fork.h"

#define TRY_MS 3000 /* for one address: the next may be the one that works */

struct uid_state {
    int fd;
    uint64_t deadline_ns;
    struct tern_place *places; /* [n_pes] */
    struct tern_blob *blobs;   /* [n_pes] */
};

static int wait_fd(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = tern_now_ns();
        struct pollfd p = {fd, events, 0};
        if (now >= deadline_ns)
            return 0;
        int n = poll(&p, 1, (int)((deadline_ns - now) / 1000000u) + 1);
        if (n > 0 || (n < 0 && errno != EINTR))
            return n;
    }
}

/* All bytes by the deadline; else false, with errno (0: the other side closed). */
static bool transfer(struct uid_state *state, void *buf, size_t bytes, bool out)
{
    char *p = buf;
    while (bytes) {
        ssize_t n = out ? send(state->fd, p, bytes, MSG_NOSIGNAL) : recv(state->fd, p, bytes, 0);
        if (n > 0) {
            p += n;
            bytes -= (size_t)n;
            continue;
        }
        if (n == 0) {
            errno = 0;
            return false;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return false;
        int ready = wait_fd(state->fd, out ? POLLOUT : POLLIN, state->deadline_ns);
        if (ready <= 0) {
            errno = ready ? errno : ETIMEDOUT;
            return false;
        }
    }
    return true;
}

static tern_status_t meeting_failed(struct tern_rt *rt)
{
    if (errno == ETIMEDOUT)
        return tern_error(TERN_ERR_TIMEOUT,
                          "tern_init: the PE that made the unique id has not answered within %lld ms; see that all "
                          "%d PEs call tern_init_attr with it, or raise TERN_TIMEOUT_MS",
                          (long long)rt->env.timeout_ms, rt->n_pes);
    return tern_error(TERN_ERR_BOOTSTRAP,
                      "tern_init: the PE that made the unique id broke off (%s); see its own message, and make a "
                      "new id for each start",
                      errno ? strerror(errno) : "connection closed");
}

/* The server's answer: a table of n_pes records, or why there will be none. */
static tern_status_t answer_read(struct tern_rt *rt, void *table, size_t bytes)
{
    struct tern_uid_answer answer;
    struct uid_state *state = rt->bootstrap_state;
    char text[512];
    if (!transfer(state, &answer, sizeof answer, false))
        return meeting_failed(rt);
    if (answer.status == TERN_OK && answer.bytes == bytes)
        return transfer(state, table, bytes, false) ? TERN_OK : meeting_failed(rt);
    if (answer.status == TERN_OK)
        return tern_error(TERN_ERR_VERSION,
                          "the PE that made the unique id has another library version; use one on all PEs");
    if (answer.bytes >= sizeof text)
        answer.bytes = sizeof text - 1;
    if (!transfer(state, text, answer.bytes, false))
        return meeting_failed(rt);
    text[answer.bytes] = '\0';
    return tern_error((tern_status_t)answer.status, "tern_init: %s", text);
}

static tern_status_t id_check(const struct tern_uid *id, const tern_init_attr_t *attr)
{
    if (id->magic != TERN_UID_MAGIC || id->addresses < 1 || id->addresses > TERN_UID_ADDRESSES)
        return tern_error(TERN_ERR_INVALID,
                          "the unique id was not made by tern_get_unique_id of this library version; hand its %zu "
                          "bytes on unchanged",
                          sizeof(tern_unique_id_t));
    if (attr->n_pes < 1 || attr->n_pes > 32767 || attr->pe < 0 || attr->pe >= attr->n_pes)
        return tern_error(TERN_ERR_INVALID,
                          "PE %d of %d is out of range; with a unique id set `pe` and `n_pes` (at most 32767)",
                          attr->pe, attr->n_pes);
    return TERN_OK;
}

static bool connect_one(struct uid_state *state, const struct tern_addr *addr, uint16_t port)
{
    uint64_t deadline = tern_now_ns() + TRY_MS * 1000000ull;
    int error = 0;
    socklen_t length = sizeof error;
    if (deadline > state->deadline_ns)
        deadline = state->deadline_ns;
    state->fd = tern_net_connect(addr, port);
    if (state->fd < 0)
        return false;
    int ready = wait_fd(state->fd, POLLOUT, deadline);
    if (ready > 0 && !getsockopt(state->fd, SOL_SOCKET, SO_ERROR, &error, &length) && !error)
        return true;
    tern_fork_close(state->fd);
    state->fd = -1;
    errno = ready == 0 ? ETIMEDOUT : error ? error : errno;
    return false;
}

/* Loopback where the maker is on this host and in this network namespace, else its addresses in turn. */
static tern_status_t connect_maker(struct uid_state *state, const struct tern_uid *id, const struct tern_place *own)
{
    struct tern_addr addr[TERN_UID_ADDRESSES];
    int count = id->addresses;
    char names[400] = "", name[80];
    memcpy(addr, id->addr, sizeof addr);
    if (own->boot && own->boot == id->boot && own->netns == id->netns) {
        tern_net_loopback(&addr[0]);
        count = 1;
    }
    for (int i = 0; i < count; i++) {
        size_t used = strlen(names);
        if (connect_one(state, &addr[i], id->port))
            return TERN_OK;
        int error = errno;
        tern_net_name(&addr[i], id->port, name, sizeof name);
        snprintf(names + used, sizeof names - used, "%s%s: %s", used ? ", " : "", name, strerror(error));
    }
    return tern_error(TERN_ERR_BOOTSTRAP,
                      "tern_init: cannot reach the PE that made the unique id (%s); it must be running, an id "
                      "starts one runtime only, and the network must let the connection through",
                      names);
}

static void uid_close(struct tern_rt *rt)
{
    struct uid_state *state = rt->bootstrap_state;
    if (!state)
        return;
    tern_fork_close(state->fd);
    free(state->places);
    free(state->blobs);
    free(state);
    rt->bootstrap_state = NULL;
}

static tern_status_t uid_open(struct tern_rt *rt, const tern_init_attr_t *attr)
{
    struct tern_uid id;
    struct tern_uid_hello hello;
    struct uid_state *state;
    tern_status_t status;

    memcpy(&id, attr->id, sizeof id);
    status = id_check(&id, attr);
    if (status != TERN_OK)
        return status;
    rt->pe = attr->pe;
    rt->n_pes = attr->n_pes;
    rt->bootstrap_state = state = calloc(1, sizeof *state);
    if (!state)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory to meet the other PEs; free some");
    state->fd = -1;
    state->deadline_ns = tern_now_ns() + ((uint64_t)rt->env.timeout_ms + TERN_UID_GRACE_MS) * 1000000u;
    state->places = calloc((size_t)rt->n_pes, sizeof *state->places);
    state->blobs = calloc((size_t)rt->n_pes, sizeof *state->blobs);
    memset(&hello, 0, sizeof hello);
    tern_place_own(&hello.place);
    if (!state->places || !state->blobs) {
        status = tern_error(TERN_ERR_NO_MEMORY, "no host memory to meet %d PEs; free some", rt->n_pes);
        goto err_close;
    }
    status = connect_maker(state, &id, &hello.place);
    if (status != TERN_OK)
        goto err_close;
    hello.magic = TERN_UID_MAGIC;
    hello.blob_bytes = sizeof(struct tern_blob);
    memcpy(hello.token, id.token, sizeof hello.token);
    hello.pe = rt->pe;
    hello.n_pes = rt->n_pes;
    status = transfer(state, &hello, sizeof hello, true)
                 ? answer_read(rt, state->places, sizeof *state->places * (size_t)rt->n_pes)
                 : meeting_failed(rt);
    if (status != TERN_OK)
        goto err_close;
    return TERN_OK;
err_close:
    uid_close(rt);
    return status;
}

static tern_status_t uid_exchange(struct tern_rt *rt, const struct tern_blob *own)
{
    struct uid_state *state = rt->bootstrap_state;
    struct tern_blob blob = *own;
    tern_status_t status = transfer(state, &blob, sizeof blob, true)
                               ? answer_read(rt, state->blobs, sizeof blob * (size_t)rt->n_pes)
                               : meeting_failed(rt);
    tern_fork_close(state->fd);
    state->fd = -1;
    return status;
}

static tern_status_t uid_get(struct tern_rt *rt, int pe, struct tern_blob *out)
{
    *out = ((struct uid_state *)rt->bootstrap_state)->blobs[pe];
    return TERN_OK;
}

static tern_status_t uid_local(struct tern_rt *rt, int **pes, int *count)
{
    const struct tern_place *places = ((struct uid_state *)rt->bootstrap_state)->places;
    *pes = calloc((size_t)rt->n_pes, sizeof **pes);
    if (!*pes)
        return tern_error(TERN_ERR_NO_MEMORY, "no memory for the list of PEs; free some");
    *count = 0;
    for (int pe = 0; pe < rt->n_pes; pe++) {
        if (places[pe].boot == places[rt->pe].boot && places[pe].netns == places[rt->pe].netns)
            (*pes)[(*count)++] = pe;
    }
    return TERN_OK;
}

const struct tern_bootstrap tern_bootstrap_uid = {
    .name = "uid",
    .open = uid_open,
    .exchange = uid_exchange,
    .get = uid_get,
    .local = uid_local,
    .close = uid_close,
};
