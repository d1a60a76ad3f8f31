/*
 * job.h - a job inside one process: every PE is a thread with a struct tern_rt of its own and a real control plane
 * (real sockets), met by way of an array. So the control plane runs under ThreadSanitizer, and over TCP without several
 * nodes: PEs that claim different boots are on different "nodes".
 */
#ifndef TEST_HOST_JOB_H
#define TEST_HOST_JOB_H

#include <pthread.h>
#include <unistd.h>

#include "common/check.h"
#include "host/bootstrap/bootstrap.h"
#include "host/control.h"
#include "host/rt.h"

enum job_net { JOB_UNIX, JOB_TCP, JOB_MIXED }; /* one node; a node per PE; PEs dealt out to three nodes */

struct job {
    int n;
    enum job_net net;
    int64_t timeout_ms;
    int on_death; /* 0 abort, 1 mask */
    uint64_t seed;
    void (*body)(struct job *job, struct tern_rt *rt);
    void (*blob)(struct job *job, struct tern_rt *rt); /* change the own blob before it is published; may be NULL */
    void (*seen)(struct job *job, struct tern_rt *rt, int pe,
                 struct tern_blob *blob); /* change what is read; may be NULL */
    tern_status_t *status;                /* [n] of tern_control_start, where the test looks at it; else NULL */
    void *data;
    struct tern_blob *blobs;
    struct tern_rt **rts;
    pthread_barrier_t barrier;
    bool crashed[64]; /* PE has ended without taking leave */
};

static struct job *job_now;

static tern_status_t job_exchange(struct tern_rt *rt, const struct tern_blob *own)
{
    job_now->blobs[rt->pe] = *own;
    pthread_barrier_wait(&job_now->barrier);
    return TERN_OK;
}

static tern_status_t job_get(struct tern_rt *rt, int pe, struct tern_blob *out)
{
    *out = job_now->blobs[pe];
    if (job_now->seen)
        job_now->seen(job_now, rt, pe, out);
    return TERN_OK;
}

static tern_status_t job_local(struct tern_rt *rt, int **pes, int *count)
{
    *pes = calloc((size_t)rt->n_pes, sizeof **pes);
    *count = rt->n_pes;
    for (int i = 0; i < rt->n_pes; i++)
        (*pes)[i] = i;
    return TERN_OK;
}

static const struct tern_bootstrap job_bootstrap = {
    .name = "job", .exchange = job_exchange, .get = job_get, .local = job_local};

struct job_pe {
    struct job *job;
    int pe;
    pthread_t thread;
};

static void *job_thread(void *arg)
{
    struct job_pe *self = (struct job_pe *)arg;
    struct job *job = self->job;
    struct tern_rt *rt = (struct tern_rt *)calloc(1, sizeof *rt);

    tern_env_load(&rt->env);
    rt->env.timeout_ms = job->timeout_ms ? job->timeout_ms : 60000;
    rt->env.on_death = job->on_death;
    rt->pe = self->pe;
    rt->n_pes = job->n;
    rt->generation = 1;
    rt->bootstrap = &job_bootstrap;
    job->rts[self->pe] = rt;
    CHECK(tern_blob_fill(rt) == TERN_OK, "%s", tern_last_error());
    if (job->net != JOB_UNIX)
        rt->blob.boot += job->net == JOB_TCP ? (uint64_t)self->pe + 1 : (uint64_t)self->pe % 3 + 1;
    if (job->blob)
        job->blob(job, rt);
    CHECK(tern_control_open(rt) == TERN_OK, "%s", tern_last_error());
    job_exchange(rt, &rt->blob);
    tern_status_t status = tern_control_start(rt);
    if (job->status)
        job->status[self->pe] = status;
    else
        CHECK(status == TERN_OK, "PE %d: %s", self->pe, tern_last_error());
    pthread_barrier_wait(&job->barrier); /* a body may crash its PE: not while others still connect */
    if (status == TERN_OK)
        job->body(job, rt);
    pthread_barrier_wait(&job->barrier);
    tern_control_stop(rt);
    tern_env_unload(&rt->env);
    pthread_barrier_wait(&job->barrier);
    free(rt);
    return NULL;
}

/* Run body() on every PE; returns when all have stopped their control planes. */
static inline void job_run(struct job *job)
{
    struct job_pe *pes = (struct job_pe *)calloc((size_t)job->n, sizeof *pes);
    job->blobs = (struct tern_blob *)calloc((size_t)job->n, sizeof *job->blobs);
    job->rts = (struct tern_rt **)calloc((size_t)job->n, sizeof(struct tern_rt *));
    memset(job->crashed, 0, sizeof job->crashed);
    pthread_barrier_init(&job->barrier, NULL, (unsigned)job->n);
    job_now = job;
    for (int i = 0; i < job->n; i++) {
        pes[i].job = job;
        pes[i].pe = i;
        if (pthread_create(&pes[i].thread, NULL, job_thread, &pes[i])) {
            fprintf(stderr, "cannot start thread %d of %d\n", i, job->n);
            exit(1);
        }
    }
    for (int i = 0; i < job->n; i++)
        pthread_join(pes[i].thread, NULL);
    pthread_barrier_destroy(&job->barrier);
    free(job->blobs);
    free(job->rts);
    free(pes);
}

/* What the others see of a PE that is killed: its sockets close, with no word of farewell. */
static inline void job_crash(struct job *job, struct tern_rt *rt)
{
    job->crashed[rt->pe] = true;
    tern_control_halt(rt);
    tern_conn_unlisten(rt->control, &rt->control->unix_listener);
    tern_conn_unlisten(rt->control, &rt->control->tcp_listener);
    tern_conn_reap(rt->control, true);
}

static inline void job_sleep_ms(int ms)
{
    usleep((useconds_t)ms * 1000);
}

/* True once the PE's job is aborted; at most 30 s. */
static inline bool job_aborted(struct tern_rt *rt)
{
    for (int i = 0; i < 30000 && !atomic_load(&rt->abort); i++)
        job_sleep_ms(1);
    return atomic_load(&rt->abort) != 0;
}

#endif
