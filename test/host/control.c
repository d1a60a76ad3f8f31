/* control.c - collective calls of the control plane over random groups against a model, descriptors, and odd callers.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "host/job.h"
#include "host/net.h"

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t state = a * 0x9e3779b97f4a7c15u ^ b * 0xc2b2ae3d27d4eb4fu ^ c * 0x165667b19e3779f9u ^ 1;
    return test_random(&state);
}

/* ---- collective calls -------------------------------------------------------------------------------------------- */

#define WORDS 6

static void check_allreduce(struct tern_rt *rt, const struct tern_group *group, const int *pes, int count, uint64_t tag)
{
    uint64_t words[WORDS], expected[WORDS];
    enum tern_reduce ops[WORDS];
    int n = 1 + (int)(mix(tag, 1, 1) % WORDS);

    for (int w = 0; w < n; w++) {
        ops[w] = (enum tern_reduce)(mix(tag, 2, (uint64_t)w) % 5);
        for (int i = 0; i < count; i++) {
            uint64_t v = mix(tag, (uint64_t)pes[i] + 10, (uint64_t)w);
            uint64_t e = expected[w];
            if (pes[i] == rt->pe)
                words[w] = v;
            if (i == 0)
                e = v;
            else if (ops[w] == TERN_REDUCE_MIN)
                e = v < e ? v : e;
            else if (ops[w] == TERN_REDUCE_MAX)
                e = v > e ? v : e;
            else if (ops[w] == TERN_REDUCE_AND)
                e &= v;
            else if (ops[w] == TERN_REDUCE_OR)
                e |= v;
            else
                e += v;
            expected[w] = e;
        }
    }
    tern_status_t status = tern_control_allreduce(rt, group, words, n, ops);
    CHECK(status == TERN_OK, "PE %d: %s", rt->pe, tern_last_error());
    CHECK(!memcmp(words, expected, sizeof(uint64_t) * (size_t)n), "PE %d: allreduce of %d words over %d PEs", rt->pe, n,
          count);
}

static void check_allgather(struct tern_rt *rt, const struct tern_group *group, const int *pes, int count, uint64_t tag)
{
    size_t bytes = mix(tag, 1, 2) % 3 ? mix(tag, 1, 3) % 100 : mix(tag, 1, 4) % 20000;
    char *in = malloc(bytes + 1), *out = malloc(bytes * (size_t)count + 1);

    for (size_t b = 0; b < bytes; b++)
        in[b] = (char)mix(tag, (uint64_t)rt->pe, b);
    tern_status_t status = tern_control_allgather(rt, group, in, bytes, out);
    CHECK(status == TERN_OK, "PE %d: %s", rt->pe, tern_last_error());
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        for (size_t b = 0; b < bytes; b += 1 + bytes / 64)
            wrong += out[(size_t)i * bytes + b] != (char)mix(tag, (uint64_t)pes[i], b);
    }
    CHECK(!wrong, "PE %d: allgather of %zu bytes over %d PEs: %d wrong", rt->pe, bytes, count, wrong);
    free(in);
    free(out);
}

/* All PEs draw the same groups and calls; members take part. */
static void random_calls(struct job *job, struct tern_rt *rt)
{
    uint64_t state = job->seed;
    int rounds = *(int *)job->data, pes[64];
    uint32_t arrived[64];

    memset(arrived, 0, sizeof arrived);
    for (int round = 0; round < rounds; round++) {
        bool all = test_random(&state) % 3 == 0;
        uint64_t odds = 1 + test_random(&state) % 4;
        int count = 0;
        uint32_t seq = (uint32_t)test_random(&state) % 3 ? 0 : UINT32_MAX; /* the counter wraps */
        for (int pe = 0; pe < job->n; pe++) {
            if (all || test_random(&state) % 4 < odds)
                pes[count++] = pe;
        }
        struct tern_group group = {pes, count, (uint32_t)round + 1, &seq};
        bool member = false;
        for (int i = 0; i < count; i++)
            member |= pes[i] == rt->pe;
        for (int call = 0; call < 3; call++) {
            uint64_t tag = test_random(&state), kind = test_random(&state) % 3;
            if (!member)
                continue;
            if (kind == 0)
                CHECK(tern_control_barrier(rt, all ? NULL : &group) == TERN_OK, "PE %d: %s", rt->pe, tern_last_error());
            else if (kind == 1)
                check_allreduce(rt, all ? NULL : &group, pes, count, tag);
            else
                check_allgather(rt, all ? NULL : &group, pes, count, tag);
        }
    }
}

/* A barrier holds everybody until the last has come. */
static void barrier_holds(struct job *job, struct tern_rt *rt)
{
    _Atomic int *arrived = job->data;
    for (int round = 1; round <= 20; round++) {
        if ((int)(mix(job->seed, (uint64_t)round, 0) % (uint64_t)job->n) == rt->pe)
            job_sleep_ms(3);
        atomic_fetch_add(arrived, 1);
        CHECK(tern_control_barrier(rt, NULL) == TERN_OK, "%s", tern_last_error());
        CHECK(atomic_load(arrived) >= round * job->n, "PE %d left barrier %d before all had come", rt->pe, round);
    }
}

/* The root has a large result first, and leaves at once: what it owes the others must still reach them. */
static void leaves_at_once(struct job *job, struct tern_rt *rt)
{
    size_t bytes = 4 << 20;
    char *in = malloc(bytes), *out = malloc(bytes * (size_t)job->n);
    memset(in, 'a' + rt->pe, bytes);
    tern_status_t status = tern_control_allgather(rt, NULL, in, bytes, out);
    if (rt->pe == 0)
        tern_control_stop(rt);
    CHECK(status == TERN_OK, "PE %d: %s", rt->pe, tern_last_error());
    for (int pe = 0; status == TERN_OK && pe < job->n; pe++)
        CHECK(out[bytes * (size_t)(pe + 1) - 1] == 'a' + pe, "PE %d: the share of PE %d", rt->pe, pe);
    free(in);
    free(out);
}

/* Both sides of a pair that has no connection make one at the same moment; what is sent then must arrive once. */
static void crossing(struct job *job, struct tern_rt *rt)
{
    uint32_t id = 0;
    for (int low = 1; low < job->n; low++) { /* PE 0 is every PE's tree neighbour */
        for (int high = low + 1; high < job->n; high++) {
            int pes[2] = {low, high};
            uint32_t seq = 0;
            struct tern_group group = {pes, 2, ++id, &seq};
            if (rt->pe != low && rt->pe != high)
                continue;
            pthread_mutex_lock(&rt->control->lock);
            CHECK(tern_conn_get(rt->control, rt->pe == low ? high : low), "no connection");
            pthread_mutex_unlock(&rt->control->lock);
            for (uint64_t i = 0; i < 3; i++)
                check_allreduce(rt, &group, pes, 2, mix(job->seed, id, i));
        }
    }
    CHECK(tern_control_barrier(rt, NULL) == TERN_OK, "%s", tern_last_error());
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static int memfd_with(uint64_t value)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && pwrite(fd, &value, sizeof value, 0) == sizeof value, "memfd");
    return fd;
}

static void check_fds(struct tern_rt *rt, int from, uint64_t tag, int count)
{
    int fds[64];
    tern_status_t status = tern_control_fd_recv(rt, from, tag, fds, count);
    CHECK(status == TERN_OK, "PE %d: %s", rt->pe, tern_last_error());
    for (int i = 0; status == TERN_OK && i < count; i++) {
        uint64_t value = 0;
        CHECK(pread(fds[i], &value, sizeof value, 0) == sizeof value, "a descriptor is not what was sent");
        CHECK(value == mix((uint64_t)from, tag, (uint64_t)i), "PE %d: descriptor %d of tag %llu", rt->pe, i,
              (unsigned long long)tag);
        CHECK(fcntl(fds[i], F_GETFD) & FD_CLOEXEC, "descriptors must not survive exec");
        close(fds[i]);
    }
}

static void fds_pass(struct job *job, struct tern_rt *rt)
{
    static const int counts[] = {1, 3, 64, 2};
    int fds[64];
    for (int to = 0; to < job->n; to++) {
        for (uint64_t tag = 0; tag < 4 && to != rt->pe; tag++) {
            for (int i = 0; i < counts[tag]; i++)
                fds[i] = memfd_with(mix((uint64_t)rt->pe, tag, (uint64_t)i));
            CHECK(tern_control_fd_send(rt, to, tag, fds, counts[tag]) == TERN_OK, "%s", tern_last_error());
            for (int i = 0; i < counts[tag]; i++)
                close(fds[i]);
        }
    }
    for (int from = job->n - 1; from >= 0; from--) {
        for (int i = 0; i < 4 && from != rt->pe; i++) { /* not in the order they were sent */
            uint64_t tag = (uint64_t)(i * 3 + rt->pe) % 4;
            check_fds(rt, from, tag, counts[tag]);
        }
    }
    CHECK(tern_control_fd_send(rt, (rt->pe + 1) % job->n, 1, fds, 0) == TERN_ERR_INVALID, "no descriptors");
    CHECK(tern_control_fd_send(rt, (rt->pe + 1) % job->n, 1, fds, 65) == TERN_ERR_INVALID, "too many descriptors");
    CHECK(tern_control_barrier(rt, NULL) == TERN_OK, "%s", tern_last_error());
}

static void fds_refused(struct job *job, struct tern_rt *rt)
{
    int fd = memfd_with(1);
    CHECK(tern_control_fd_send(rt, (rt->pe + 1) % job->n, 1, &fd, 1) == TERN_ERR_INVALID,
          "descriptors to another node");
    close(fd);
    CHECK(tern_control_barrier(rt, NULL) == TERN_OK, "%s", tern_last_error());
}

/* ---- strangers --------------------------------------------------------------------------------------------------- */

static int dial_unix(const char *name)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(un.sun_path + 1, name, strlen(name));
    REQUIRE(
        !connect(fd, (struct sockaddr *)&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))),
        "connect: %s", strerror(errno));
    return fd;
}

static int dial_tcp(uint16_t port)
{
    struct tern_addr addr;
    tern_net_loopback(&addr);
    int fd = tern_net_connect(&addr, port);
    REQUIRE(fd >= 0, "connect: %s", strerror(errno));
    job_sleep_ms(20);
    fcntl(fd, F_SETFL, 0);
    return fd;
}

/* The listener must close the connection without a word. */
static void check_refused(int fd, const void *bytes, size_t n, const char *what)
{
    char answer;
    struct timeval limit = {20, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    CHECK(send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n, "%s: send: %s", what, strerror(errno));
    ssize_t got = recv(fd, &answer, 1, 0);
    CHECK(got == 0 || (got < 0 && errno == ECONNRESET), "%s was not refused (%zd, %s)", what, got, strerror(errno));
    close(fd);
}

struct hello {
    struct tern_frame frame;
    struct tern_greeting greeting;
};

static void strangers(struct job *job, struct tern_rt *rt)
{
    /* what a right greeting from PE 1 to PE 0 looks like, and one thing wrong with each */
    struct hello good = {{sizeof(struct tern_greeting), TERN_FRAME_HELLO, 0}, {0x6f6c6c65u, 1, 1, 0, {0}}}, bad;
    const struct tern_blob *target = &job->blobs[0];
    memcpy(good.greeting.cookie, target->cookie, sizeof good.greeting.cookie);

    CHECK(tern_control_barrier(rt, NULL) == TERN_OK, "%s", tern_last_error());
    if (rt->pe == 1) {
        for (int tcp = 0; tcp <= (job->net != JOB_UNIX); tcp++) {
#define DIAL() (tcp ? dial_tcp(target->port) : dial_unix(target->socket))
            for (int bit = 0; bit < 128; bit += 37) {
                bad = good;
                bad.greeting.cookie[bit / 8] ^= (unsigned char)(1 << bit % 8);
                check_refused(DIAL(), &bad, sizeof bad, "a wrong cookie");
            }
            bad = good, bad.greeting.from = job->n;
            check_refused(DIAL(), &bad, sizeof bad, "a PE out of range");
            bad = good, bad.greeting.from = -1;
            check_refused(DIAL(), &bad, sizeof bad, "a negative PE");
            bad = good, bad.greeting.from = 0;
            check_refused(DIAL(), &bad, sizeof bad, "the PE itself");
            bad = good, bad.greeting.to = 2;
            check_refused(DIAL(), &bad, sizeof bad, "a greeting for another PE");
            bad = good, bad.greeting.magic ^= 1;
            check_refused(DIAL(), &bad, sizeof bad, "a wrong magic");
            bad = good, bad.greeting.protocol = 99;
            check_refused(DIAL(), &bad, sizeof bad, "another protocol");
            bad = good, bad.frame.bytes = 1u << 30;
            check_refused(DIAL(), &bad, sizeof bad, "a giant frame");
            bad = good, bad.frame.type = TERN_FRAME_ABORT;
            check_refused(DIAL(), &bad, sizeof bad, "an abort by a stranger");
            check_refused(DIAL(), &good, sizeof good, "a second connection of a connected PE");
            close(DIAL()); /* says nothing */
        }
    }
    for (int i = 0; i < 5; i++)
        CHECK(tern_control_barrier(rt, NULL) == TERN_OK, "%s", tern_last_error());
}

/*
 * A PE that has no connection yet is believed if it knows the cookie, and only then. PE 18 and PE 5 are no neighbours
 * in the tree; that the false PE 18 leaves without farewell then ends the job.
 */
static void believed(struct job *job, struct tern_rt *rt)
{
    struct hello good = {{sizeof(struct tern_greeting), TERN_FRAME_HELLO, 0}, {0x6f6c6c65u, 1, 18, 5, {0}}}, answer;
    const struct tern_blob *target = &job->blobs[5];
    memcpy(good.greeting.cookie, target->cookie, sizeof good.greeting.cookie);
    CHECK(tern_control_barrier(rt, NULL) == TERN_OK, "%s", tern_last_error());
    if (rt->pe == 1) {
        for (int bit = 0; bit < 128; bit++) {
            struct hello bad = good;
            bad.greeting.cookie[bit / 8] ^= (unsigned char)(1 << bit % 8);
            check_refused(dial_tcp(target->port), &bad, sizeof bad, "a cookie with one wrong bit");
        }
        CHECK(!atomic_load(&rt->abort), "%s", rt->abort_reason);
        int fd = dial_tcp(target->port);
        CHECK(send(fd, &good, sizeof good, MSG_NOSIGNAL) == sizeof good, "send");
        CHECK(recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer, "no welcome");
        CHECK(answer.frame.type == TERN_FRAME_WELCOME && answer.greeting.from == 5, "not a welcome");
        CHECK(!memcmp(answer.greeting.cookie, job->blobs[18].cookie, sizeof answer.greeting.cookie),
              "not the caller's cookie");
        close(fd);
    }
    CHECK(job_aborted(rt), "PE %d was not told", rt->pe);
    CHECK(strstr(rt->abort_reason, "PE 18 (process"), "%s", rt->abort_reason);
}

/* ---- impostors: somebody else answers where PE 0 should ---------------------------------------------------------- */

static struct {
    int listener;
    char name[32];
    _Atomic int answered;
} impostor;

/* Answers every greeting as PE 0 would, but for the cookie, which it cannot know. */
static void *impostor_thread(void *arg)
{
    (void)arg;
    for (;;) {
        struct hello heard,
            answer = {{sizeof(struct tern_greeting), TERN_FRAME_WELCOME, 0}, {0x6f6c6c65u, 1, 0, 1, {3}}};
        int fd = accept4(impostor.listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        if (recv(fd, &heard, sizeof heard, MSG_WAITALL) == sizeof heard &&
            send(fd, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer)
            atomic_fetch_add(&impostor.answered, 1);
        recv(fd, &heard, 1, 0);
        close(fd);
    }
}

static void impostor_blob(struct job *job, struct tern_rt *rt, int pe, struct tern_blob *blob)
{
    (void)job;
    if (rt->pe == 1 && pe == 0)
        snprintf(blob->socket, sizeof blob->socket, "%s", impostor.name);
}

static void nothing(struct job *job, struct tern_rt *rt)
{
    (void)job;
    (void)rt;
}

static void impostors(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    pthread_t thread;
    tern_status_t status[2];
    struct job job = {.n = 2, .timeout_ms = 400, .body = nothing, .seen = impostor_blob, .status = status};

    snprintf(impostor.name, sizeof impostor.name, "impostor-%d", (int)getpid());
    memcpy(un.sun_path + 1, impostor.name, strlen(impostor.name));
    impostor.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(impostor.name));
    REQUIRE(!bind(impostor.listener, (struct sockaddr *)&un, length) && !listen(impostor.listener, 8), "listen");
    REQUIRE(!pthread_create(&thread, NULL, impostor_thread, NULL), "thread");
    job_run(&job);
    CHECK(atomic_load(&impostor.answered) > 0, "the impostor was not asked");
    for (int pe = 0; pe < 2; pe++)
        CHECK(status[pe] == TERN_ERR_TIMEOUT, "PE %d got %s", pe, tern_status_name(status[pe]));
    shutdown(impostor.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(impostor.listener);
}

int main(void)
{
    uint64_t seed = test_seed();
    static const int sizes[] = {1, 2, 3, 7, 18, 40};
    alarm(240);
    tern_log_open(getenv("TEST_VERBOSE") ? TERN_LOG_DEBUG : TERN_LOG_NONE, NULL, -1);
    for (int net = JOB_UNIX; net <= JOB_MIXED; net++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            int rounds = sizes[i] > 10 ? 25 : 60;
            struct job job = {
                .n = sizes[i], .net = (enum job_net)net, .seed = seed + i, .body = random_calls, .data = &rounds};
            job_run(&job);
        }
        _Atomic int arrived = 0;
        struct job holds = {.n = 5, .net = (enum job_net)net, .seed = seed, .body = barrier_holds, .data = &arrived};
        job_run(&holds);
        struct job leaves = {.n = 3, .net = (enum job_net)net, .body = leaves_at_once};
        job_run(&leaves);
        struct job odd = {.n = 3, .net = (enum job_net)net, .body = strangers};
        job_run(&odd);
    }
    for (int round = 0; round < 20; round++) { /* the first frames come with the welcome, or not */
        struct job fds = {.n = 4, .body = fds_pass};
        job_run(&fds);
    }
    for (int round = 0; round < 20; round++) {
        struct job cross = {.n = 6, .net = JOB_TCP, .seed = seed, .body = crossing};
        job_run(&cross);
    }
    struct job refused = {.n = 2, .net = JOB_TCP, .body = fds_refused};
    job_run(&refused);
    struct job trusting = {.n = 20, .net = JOB_TCP, .body = believed};
    job_run(&trusting);
    impostors();
    return test_end("control");
}
