/*
 * message.c - messages between proxies over the control plane: from any thread to any PE, the own one included, in
 * order and whole, answered from where they are told; kept before somebody is told, not told afterwards; a dead target.
 */
#include <stdatomic.h>

#include "host/forked.h"
#include "host/job.h"

#define THREADS 2
#define MOST (64 << 10)
#define MAX_PES 32

enum { KIND_DATA, KIND_ASK, KIND_ANSWER, KIND_BEFORE_EMPTY, KIND_LAST, KIND_EMPTY };

struct head {
    uint32_t kind, thread, seq, bytes; /* of the whole message */
    uint64_t seed;
};

/* Of one PE. What a control thread alone writes is atomic where the test's threads look at it. */
struct post {
    struct job *job;
    uint32_t next[MAX_PES][THREADS]; /* number of the next message */
    bool empty_due[MAX_PES];
    _Atomic int last, asked, answered, deaths, told; /* what has come, but for `asked` */
    _Atomic bool closed;                             /* nothing may be told any more */
    _Atomic bool dead[MAX_PES];
    pthread_mutex_t order[MAX_PES]; /* a message and the empty one behind it */
};

static struct post posts[MAX_PES];

static unsigned char fill_byte(uint64_t seed, size_t at)
{
    return (unsigned char)((seed + at * 2654435761u) >> 7);
}

static void told_message(struct tern_rt *rt, int from, const void *body, size_t bytes)
{
    struct post *post = &posts[rt->pe];
    const unsigned char *data = (const unsigned char *)body;
    struct head head = {0};
    int wrong = 0;

    CHECK(!atomic_load(&post->closed), "PE %d was told of a message of PE %d after the end", rt->pe, from);
    CHECK(!post->dead[from], "a message of PE %d after its death", from);
    atomic_fetch_add(&post->told, 1);
    if (bytes)
        memcpy(&head, body, sizeof head);
    if (head.kind != KIND_ANSWER) { /* the control thread's answers may come before the empty message that is due */
        CHECK((bytes == 0) == post->empty_due[from], "PE %d got %zu bytes from PE %d: empty is %s", rt->pe, bytes, from,
              post->empty_due[from] ? "due" : "not due");
        post->empty_due[from] = false;
    }
    if (bytes == 0)
        return;
    CHECK(head.bytes == bytes && head.thread < THREADS, "PE %d: a message of %u bytes came with %zu", rt->pe,
          head.bytes, bytes);
    for (size_t i = sizeof head; i < bytes; i++)
        wrong += data[i] != fill_byte(head.seed, i);
    CHECK(!wrong, "PE %d: %d of %zu bytes from PE %d are wrong", rt->pe, wrong, bytes, from);
    if (head.kind == KIND_ANSWER) {
        atomic_fetch_add(&post->answered, 1);
        return;
    }
    CHECK(head.seq == post->next[from][head.thread], "PE %d: message %u of thread %u of PE %d came instead of %u",
          rt->pe, head.seq, head.thread, from, post->next[from][head.thread]);
    post->next[from][head.thread] = head.seq + 1;
    post->empty_due[from] = head.kind == KIND_BEFORE_EMPTY;
    if (head.kind == KIND_LAST)
        atomic_fetch_add(&post->last, 1);
    if (head.kind == KIND_ASK) { /* from the control thread itself */
        struct head answer = {KIND_ANSWER, 0, 0, sizeof answer, 0};
        tern_status_t status = tern_control_message(rt, from, &answer, sizeof answer);
        CHECK(status == TERN_OK || status == TERN_ERR_PEER_DEAD, "PE %d answers PE %d: %s", rt->pe, from,
              tern_last_error());
    }
}

static void told_dead(struct tern_rt *rt, int pe)
{
    CHECK(!posts[rt->pe].dead[pe], "PE %d was told twice of the death of PE %d", rt->pe, pe);
    posts[rt->pe].dead[pe] = true;
    atomic_fetch_add(&posts[rt->pe].deaths, 1);
}

static void told_dump(struct tern_rt *rt, const char *why)
{
    CHECK(false, "PE %d was told to dump: %s", rt->pe, why);
}

static const struct tern_control_calls calls = {told_message, told_dead, told_dump};

static tern_status_t message_send(struct tern_rt *rt, int to, uint32_t kind, uint32_t thread, uint32_t seq,
                                  size_t bytes, uint64_t seed)
{
    unsigned char *body = (unsigned char *)malloc(bytes + 1);
    struct head head = {kind, thread, seq, (uint32_t)bytes, seed};
    tern_status_t status;

    for (size_t i = 0; i < bytes; i++)
        body[i] = fill_byte(seed, i);
    memcpy(body, &head, sizeof head);
    status = tern_control_message(rt, to, body, bytes);
    free(body);
    return status;
}

struct sender {
    struct tern_rt *rt;
    struct job *job;
    uint32_t thread;
};

static size_t random_size(uint64_t *state)
{
    uint64_t most = test_random(state) % 8 ? 300 : MOST;
    return sizeof(struct head) + test_random(state) % (most - sizeof(struct head) + 1);
}

static void *sender_main(void *arg)
{
    struct sender *self = (struct sender *)arg;
    struct tern_rt *rt = self->rt;
    struct post *post = &posts[rt->pe];
    uint64_t state = self->job->seed * 77 + (uint64_t)rt->pe * THREADS + self->thread + 1;
    uint32_t seq[MAX_PES] = {0};
    int rounds = *(int *)self->job->data;

    for (int i = 0; i < rounds + rt->n_pes; i++) {
        int to = i < rounds ? (int)(test_random(&state) % (uint64_t)rt->n_pes) : i - rounds;
        uint64_t dice = test_random(&state) % 8;
        uint32_t kind = i >= rounds ? KIND_LAST : dice == 0 ? KIND_ASK : dice == 1 ? KIND_BEFORE_EMPTY : KIND_DATA;
        size_t bytes = dice == 2 ? MOST : random_size(&state);

        if (kind == KIND_ASK)
            atomic_fetch_add(&post->asked, 1);
        pthread_mutex_lock(&post->order[to]);
        CHECK(message_send(rt, to, kind, self->thread, seq[to]++, bytes, test_random(&state)) == TERN_OK,
              "PE %d to PE %d: %s", rt->pe, to, tern_last_error());
        if (kind == KIND_BEFORE_EMPTY)
            CHECK(tern_control_message(rt, to, NULL, 0) == TERN_OK, "%s", tern_last_error());
        pthread_mutex_unlock(&post->order[to]);
    }
    return NULL;
}

static void post_reset(struct job *job)
{
    for (int pe = 0; pe < MAX_PES; pe++) {
        memset(&posts[pe], 0, sizeof posts[pe]);
        posts[pe].job = job;
        for (int to = 0; to < MAX_PES; to++)
            pthread_mutex_init(&posts[pe].order[to], NULL);
    }
}

static bool reached(_Atomic int *counter, int value)
{
    for (int i = 0; i < 60000 && atomic_load(counter) < value; i++)
        job_sleep_ms(1);
    return atomic_load(counter) == value;
}

static void random_body(struct job *job, struct tern_rt *rt)
{
    struct post *post = &posts[rt->pe];
    struct sender senders[THREADS];
    pthread_t threads[THREADS];

    if (rt->pe % 2)
        tern_control_deliver(rt, &calls);
    for (uint32_t i = 0; i < THREADS; i++) {
        senders[i] = (struct sender){rt, job, i};
        REQUIRE(!pthread_create(&threads[i], NULL, sender_main, &senders[i]), "thread");
    }
    if (rt->pe % 2 == 0) {
        job_sleep_ms(20);
        CHECK(atomic_load(&post->told) == 0, "PE %d was told before it asked for it", rt->pe);
        tern_control_deliver(rt, &calls);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(reached(&post->last, job->n * THREADS), "PE %d: %d of %d last messages came", rt->pe,
          atomic_load(&post->last), job->n * THREADS);
    CHECK(reached(&post->answered, atomic_load(&post->asked)), "PE %d: %d of %d answers came", rt->pe,
          atomic_load(&post->answered), atomic_load(&post->asked));
    CHECK(atomic_load(&post->deaths) == 0, "PE %d: deaths", rt->pe);
    CHECK(tern_control_barrier(rt, NULL) == TERN_OK, "%s", tern_last_error());

    CHECK(tern_control_message(rt, 0, NULL, TERN_MESSAGE_MOST + 1) == TERN_ERR_INVALID, "a message of any size");
    /* nothing is told from here on, though messages still come */
    CHECK(message_send(rt, (rt->pe + 1) % job->n, KIND_ANSWER, 0, 0, 100, 1) == TERN_OK, "%s", tern_last_error());
    tern_control_deliver(rt, NULL);
    atomic_store(&post->closed, true);
    CHECK(message_send(rt, rt->pe, KIND_ANSWER, 0, 0, 100, 1) == TERN_OK, "%s", tern_last_error());
    job_sleep_ms(5);
}

/*
 * The last PE answers for a while and dies. What it sent is told before its death, its death once, nothing afterwards;
 * in the end messages to it are refused, by those too that never had a connection with it.
 */
static void dying_body(struct job *job, struct tern_rt *rt)
{
    struct post *post = &posts[rt->pe];
    int victim = job->n - 1;
    tern_status_t status = TERN_OK;

    tern_control_deliver(rt, &calls);
    pthread_barrier_wait(&job->barrier);
    if (rt->pe == victim) {
        for (uint32_t seq = 0; seq < 50; seq++)
            for (int to = 0; to < victim; to += 1 + victim / 3)
                CHECK(message_send(rt, to, KIND_DATA, 0, seq, 1000, seq) == TERN_OK, "%s", tern_last_error());
        job_sleep_ms((int)(job->seed % 20));
        tern_control_deliver(rt, NULL);
        job_crash(job, rt);
        return;
    }
    for (uint32_t seq = 0; seq < 60000 && status == TERN_OK; seq++) {
        status = message_send(rt, victim, seq % 4 ? KIND_DATA : KIND_ASK, 0, seq, 64, seq);
        job_sleep_ms(1);
    }
    CHECK(status == TERN_ERR_PEER_DEAD, "PE %d to the dead: %s", rt->pe, tern_status_name(status));
    CHECK(strstr(tern_last_error(), "dead"), "'%s'", tern_last_error());
    CHECK(reached(&post->deaths, 1) && post->dead[victim], "PE %d was told of %d deaths", rt->pe,
          atomic_load(&post->deaths));
    CHECK(!atomic_load(&rt->abort), "PE %d: the job was aborted", rt->pe);
    tern_control_deliver(rt, NULL);
    atomic_store(&post->closed, true);
}

/* The same with processes, the last of which kills itself; jobs are those of a program, proxies apart. */
static int forked_body(struct forked *forked, int pe)
{
    struct tern_rt *rt = tern_rt_current;
    struct post *post = &posts[pe];
    int victim = forked->n - 1;
    tern_status_t status = TERN_OK;

    REQUIRE(rt, "PE %d: %s", pe, tern_last_error());
    tern_control_deliver(rt, &calls);
    CHECK(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    for (uint32_t seq = 0; seq < 20; seq++)
        for (int to = 0; to < forked->n; to++)
            CHECK(message_send(rt, to, KIND_DATA, 0, seq, 5000, seq) == TERN_OK || to == victim, "%s",
                  tern_last_error());
    if (pe == victim)
        raise(SIGKILL);
    for (uint32_t seq = 20; seq < 20000 && status == TERN_OK; seq++) {
        status = message_send(rt, victim, seq % 4 ? KIND_DATA : KIND_ASK, 0, seq, 64, seq);
        job_sleep_ms(1);
    }
    CHECK(status == TERN_ERR_PEER_DEAD, "PE %d to the dead: %s", pe, tern_status_name(status));
    for (int ms = 0; ms < 20000 && !post->dead[victim]; ms++)
        job_sleep_ms(1);
    CHECK(post->dead[victim], "PE %d was not told of the death", pe); /* of PEs that have left since it may have been */
    for (int from = 0; from < victim; from++)                         /* the victim's last ones may be lost with it */
        for (int ms = 0; ms < 20000 && __atomic_load_n(&post->next[from][0], __ATOMIC_ACQUIRE) < 20; ms++)
            job_sleep_ms(1);
    tern_control_deliver(rt, NULL);
    for (int from = 0; from < victim; from++)
        CHECK(post->next[from][0] == 20, "PE %d: %u of 20 messages of PE %d", pe, post->next[from][0], from);
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    return 0;
}

static void check_processes(void)
{
    static struct forked forked;

    post_reset(NULL);
    setenv("TERN_ON_DEATH", "mask", 1);
    forked_new(&forked, 4);
    forked.body = forked_body;
    forked_start(&forked, 0, 3);
    forked_wait(&forked);
    CHECK(WIFSIGNALED(forked.exits[3]), "PE 3 was not killed: %#x", forked.exits[3]);
    forked.exits[3] = 0;
    forked_good(&forked, "message");
    unsetenv("TERN_ON_DEATH");
}

/* An aborted job refuses messages. */
static void abort_body(struct job *job, struct tern_rt *rt)
{
    tern_control_deliver(rt, &calls);
    if (rt->pe == 0)
        tern_control_abort(rt, TERN_ERR_ABORTED, 0, "test");
    CHECK(job_aborted(rt), "PE %d", rt->pe);
    CHECK(tern_control_message(rt, job->n - 1, "x", 1) == TERN_ERR_ABORTED, "%s", tern_last_error());
    tern_control_deliver(rt, NULL);
}

static void run(struct job *job, enum job_net net, int n, void (*body)(struct job *, struct tern_rt *), int on_death)
{
    job->net = net;
    job->n = n;
    job->body = body;
    job->on_death = on_death;
    post_reset(job);
    job_run(job);
}

int main(void)
{
    int rounds = 150;
    struct job job = {.seed = test_seed(), .data = &rounds};

    setenv("TERN_LOG", "none", 1);
    atomic_store(&tern_log_level, TERN_LOG_NONE);
    check_processes(); /* first: it forks */
    for (int net = JOB_UNIX; net <= JOB_MIXED && !test_failures; net++) {
        run(&job, (enum job_net)net, 1, random_body, 0);
        run(&job, (enum job_net)net, 2, random_body, 0);
        run(&job, (enum job_net)net, 5, random_body, 0);
        run(&job, (enum job_net)net, 3, dying_body, 1);
        run(&job, (enum job_net)net, 3, abort_body, 0);
    }
    rounds = 40;
    if (!test_failures) {
        run(&job, JOB_TCP, 20, random_body, 0); /* not all are neighbours in the tree */
        run(&job, JOB_TCP, 20, dying_body, 1);
    }
    return test_end("message");
}
