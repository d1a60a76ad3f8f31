/*
 * control_fail.c - what ends collective calls of the control plane: different calls, PEs that do not come, job abort,
 * death under both policies, a silent network, reports of the device, PEs with other versions.
 */
#include "host/job.h"

#define EXPECT_TEXT(text, part) CHECK(strstr(text, part), "PE %d: '%s' lacks '%s'", rt->pe, text, part)

/* ---- different calls --------------------------------------------------------------------------------------------- */

static void mismatch(struct job *job, struct tern_rt *rt)
{
    enum tern_reduce ops[2] = {TERN_REDUCE_MIN, TERN_REDUCE_MAX}, other[2] = {TERN_REDUCE_MIN, TERN_REDUCE_SUM};
    uint64_t state = job->seed, words[2] = {1, 2};
    char all[64 * 16], name[32], text[1024];

    for (int round = 0; round < 40; round++) {
        int odd = (int)(test_random(&state) % (uint64_t)job->n), kind = (int)(test_random(&state) % 5);
        tern_status_t status;
        tern_call_name = rt->pe == odd ? "tern_odd" : "tern_even";
        if (rt->pe != odd)
            status = tern_control_allreduce(rt, NULL, words, 2, ops);
        else if (kind == 0)
            status = tern_control_barrier(rt, NULL);
        else if (kind == 1)
            status = tern_control_allgather(rt, NULL, words, sizeof words, all);
        else if (kind == 2)
            status = tern_control_allreduce(rt, NULL, words, 1, ops);
        else
            status = tern_control_allreduce(rt, NULL, words, 2, other);
        CHECK(status == TERN_ERR_MISMATCH, "PE %d got %s", rt->pe, tern_status_name(status));
        snprintf(text, sizeof text, "%s", tern_last_error());
        snprintf(name, sizeof name, "PE %d ", odd);
        EXPECT_TEXT(text, name);
        EXPECT_TEXT(text, "tern_odd");
        EXPECT_TEXT(text, "tern_even");
        CHECK(tern_control_allgather(rt, NULL, text, 16, all) == TERN_OK, "in step again: %s", tern_last_error());
        for (int i = 0; i < job->n; i++)
            CHECK(!memcmp(all, all + 16 * i, 16), "all PEs say the same");
    }
    tern_call_name = NULL;
}

/* Groups that are not the same on all members. */
static void groups_differ(struct job *job, struct tern_rt *rt)
{
    int pes[3] = {0, 1, 2};
    uint32_t seq = 0;
    struct tern_group group = {pes, rt->pe == 2 ? 3 : 2, 5, &seq};
    if (rt->pe == 1)
        group.count = 2;
    if (rt->pe == 0)
        group.count = 3;
    (void)job;
    tern_status_t status = rt->pe < 3 ? tern_control_barrier(rt, &group) : TERN_ERR_MISMATCH;
    CHECK(status == TERN_ERR_MISMATCH, "PE %d got %s", rt->pe, tern_status_name(status));
    CHECK(tern_control_barrier(rt, NULL) == TERN_OK, "%s", tern_last_error());
}

/* ---- who does not come ------------------------------------------------------------------------------------------- */

static void absent(struct job *job, struct tern_rt *rt)
{
    int who = *(int *)job->data;
    char name[64];
    snprintf(name, sizeof name, "PE %d has not come", who);
    tern_call_name = "tern_wedding";
    if (rt->pe == who) {
        CHECK(job_aborted(rt), "PE %d was not told", rt->pe);
    } else {
        tern_status_t status = tern_control_barrier(rt, NULL);
        CHECK(status == TERN_ERR_TIMEOUT, "PE %d got %s", rt->pe, tern_status_name(status));
        EXPECT_TEXT(tern_last_error(), name);
    }
    EXPECT_TEXT(rt->abort_reason, name);
    EXPECT_TEXT(rt->abort_reason, "tern_wedding");
    CHECK(TERN_ABORT_STATUS(atomic_load(&rt->abort)) == TERN_ERR_TIMEOUT, "status of the abort");
    CHECK(TERN_ABORT_PE(atomic_load(&rt->abort)) == who, "PE of the abort");
}

static void fds_absent(struct job *job, struct tern_rt *rt)
{
    int fd;
    (void)job;
    if (rt->pe == 0) {
        CHECK(tern_control_fd_recv(rt, 1, 7, &fd, 1) == TERN_ERR_TIMEOUT, "descriptors that nobody sends");
        EXPECT_TEXT(tern_last_error(), "PE 1");
    }
    CHECK(job_aborted(rt), "PE %d was not told", rt->pe);
}

/* ---- abort ------------------------------------------------------------------------------------------------------- */

static void abort_flood(struct job *job, struct tern_rt *rt)
{
    int who = *(int *)job->data;
    struct tern_state_host state;
    memset(&state, 0, sizeof state);
    rt->state_host = &state;
    tern_control_watch(rt);
    if (rt->pe == who) {
        job_sleep_ms(30);
        tern_control_abort(rt, TERN_ERR_ABORTED, who, "enough %d", 77);
        tern_control_abort(rt, TERN_ERR_DEVICE, who, "the second reason does not count");
    } else {
        tern_status_t status = tern_control_barrier(rt, NULL);
        CHECK(status == TERN_ERR_ABORTED, "PE %d got %s", rt->pe, tern_status_name(status));
        EXPECT_TEXT(tern_last_error(), "enough 77");
    }
    CHECK(!strcmp(rt->abort_reason, "enough 77"), "PE %d: '%s'", rt->pe, rt->abort_reason);
    CHECK(__atomic_load_n(&state.abort, __ATOMIC_ACQUIRE) == TERN_ABORT_WORD(1, who, TERN_ERR_ABORTED),
          "the device's word");
    CHECK(tern_control_barrier(rt, NULL) == TERN_ERR_ABORTED, "sticky");
    CHECK(tern_abort_status(rt) == TERN_ERR_ABORTED, "status");
    rt->state_host = NULL;
    tern_control_watch(rt);
}

/* ---- death ------------------------------------------------------------------------------------------------------- */

static void death_aborts(struct job *job, struct tern_rt *rt)
{
    int who = *(int *)job->data;
    char name[64];
    snprintf(name, sizeof name, "PE %d (process", who);
    if (rt->pe == who) {
        job_sleep_ms(20);
        job_crash(job, rt);
        return;
    }
    tern_status_t status = TERN_OK;
    while (status == TERN_OK)
        status = tern_control_barrier(rt, NULL);
    CHECK(status == TERN_ERR_PEER_DEAD, "PE %d got %s", rt->pe, tern_status_name(status));
    EXPECT_TEXT(tern_last_error(), name);
    EXPECT_TEXT(rt->abort_reason, name);
    CHECK(tern_abort_status(rt) == TERN_ERR_PEER_DEAD, "status");
    CHECK(tern_control_dead(rt, who) || TERN_ABORT_PE(atomic_load(&rt->abort)) == who, "who died");
}

/*
 * Level 2: several PEs die, the root of the tree among them. Groups without them go on, groups with them are refused,
 * and an abort still reaches everybody alive.
 */
static void death_masked(struct job *job, struct tern_rt *rt)
{
    static _Atomic int through;
    const int *dead = job->data; /* ends with -1 */
    int pes[64], count = 0, caller = -1;
    uint32_t seq = 0, seq_pair = 0;
    bool dies = false;
    for (int i = 0; dead[i] >= 0; i++)
        dies |= dead[i] == rt->pe;
    if (dies) {
        if (rt->pe == 0) { /* deaf before the others die: it hands their deaths on to nobody */
            tern_control_halt(rt);
            job_sleep_ms(150);
        }
        job_sleep_ms(20);
        job_crash(job, rt);
        return;
    }
    for (int pe = 0; pe < job->n; pe++) {
        bool alive = true;
        for (int i = 0; dead[i] >= 0; i++)
            alive &= dead[i] != pe;
        if (alive)
            pes[count++] = pe;
        if (alive)
            caller = pe;
    }
    tern_status_t status = TERN_OK;
    while (status == TERN_OK)
        status = tern_control_barrier(rt, NULL);
    CHECK(status == TERN_ERR_PEER_DEAD, "PE %d got %s", rt->pe, tern_status_name(status));
    for (int i = 0; dead[i] >= 0; i++) {
        for (int ms = 0; ms < 20000 && !tern_control_dead(rt, dead[i]); ms++)
            job_sleep_ms(1);
        CHECK(tern_control_dead(rt, dead[i]), "PE %d does not know that PE %d is dead", rt->pe, dead[i]);
    }
    CHECK(!atomic_load(&rt->abort), "aborted: %s", rt->abort_reason);
    struct tern_group alive = {pes, count, 1, &seq};
    for (int i = 0; i < 5; i++)
        CHECK(tern_control_barrier(rt, &alive) == TERN_OK, "PE %d: %s", rt->pe, tern_last_error());
    int pair[2] = {dead[0] < rt->pe ? dead[0] : rt->pe, dead[0] < rt->pe ? rt->pe : dead[0]};
    struct tern_group with_dead = {pair, 2, 100 + (uint32_t)rt->pe, &seq_pair};
    CHECK(tern_control_barrier(rt, &with_dead) == TERN_ERR_PEER_DEAD, "a group with a dead PE");
    atomic_fetch_add(&through, 1);
    for (int ms = 0; ms < 20000 && rt->pe == caller && atomic_load(&through) < count; ms++)
        job_sleep_ms(1);
    if (rt->pe == caller) {
        atomic_store(&through, 0);
        tern_control_abort(rt, TERN_ERR_ABORTED, caller, "the living end it");
    }
    CHECK(job_aborted(rt), "PE %d was not told", rt->pe);
    EXPECT_TEXT(rt->abort_reason, "the living end it");
}

/* A PE whose thread has stopped, with its sockets open: over TCP only the heartbeat can tell; on one node it is not
 * dead. */
static void silence(struct job *job, struct tern_rt *rt)
{
    if (rt->pe == 1)
        tern_control_halt(rt);
    if (job->net == JOB_TCP && rt->pe != 1) {
        CHECK(job_aborted(rt), "PE %d did not notice", rt->pe);
        EXPECT_TEXT(rt->abort_reason, "PE 1 (process");
        EXPECT_TEXT(rt->abort_reason, "heartbeat");
    }
    if (job->net == JOB_UNIX && rt->pe != 1) {
        job_sleep_ms(4000);
        CHECK(!atomic_load(&rt->abort), "silence on one node is no death: %s", rt->abort_reason);
    }
}

/* ---- reports of the device --------------------------------------------------------------------------------------- */

static const struct report_case {
    struct tern_report report;
    tern_status_t status;
    const char *text;
} report_cases[] = {
    {{.kind = TERN_REPORT_CHECK, .call = TERN_CALL_put, .why = TERN_WHY_PE, .pe = 9, .block = 3, .thread = 17},
     TERN_ERR_INVALID,
     "tern_put in a kernel of PE 0 (block 3, thread 17): PE 9 is not one of the 2 PEs"},
    {{.kind = TERN_REPORT_CHECK,
      .call = TERN_CALL_get,
      .why = TERN_WHY_ADDRESS,
      .pe = 1,
      .address = 0x1234,
      .bytes = 64},
     TERN_ERR_INVALID,
     "tern_get in a kernel of PE 0 (block 0, thread 0): 64 bytes at 0x1234 (for PE 1) are not in the symmetric"},
    {{.kind = TERN_REPORT_CHECK,
      .call = TERN_CALL_p,
      .why = TERN_WHY_ALIGN,
      .pe = 1,
      .address = 0x1001,
      .bytes = 64,
      .value = 8},
     TERN_ERR_INVALID,
     "address 0x1001 (for PE 1) is not aligned to 8 bytes"},
    {{.kind = TERN_REPORT_CHECK, .call = TERN_CALL_fence, .why = TERN_WHY_STALE},
     TERN_ERR_STALE,
     "a runtime that has ended"},
    {{.kind = TERN_REPORT_CHECK, .call = TERN_CALL_signal_op, .why = TERN_WHY_OP, .value = 99},
     TERN_ERR_INVALID,
     "operator 99"},
    {{.kind = TERN_REPORT_CHECK, .call = TERN_CALL_ctx_stage, .why = TERN_WHY_STAGE, .bytes = 7},
     TERN_ERR_INVALID,
     "stage of 7 bytes"},
    {{.kind = TERN_REPORT_TIMEOUT, .call = TERN_CALL_sync_all, .why = TERN_WHY_TIMEOUT, .pe = 1, .value = 12},
     TERN_ERR_TIMEOUT,
     "tern_sync_all in a kernel of PE 0 (block 0, thread 0): waited more than"},
    {{.kind = TERN_REPORT_CHECK, .call = 999, .why = 999, .pe = 1},
     TERN_ERR_INVALID,
     "a device call in a kernel of PE 0"},
};

static void device_report(struct job *job, struct tern_rt *rt)
{
    const struct report_case *one = job->data;
    struct tern_state_host state;
    memset(&state, 0, sizeof state);
    rt->state_host = &state;
    tern_control_watch(rt);
    if (rt->pe == 0) {
        uint32_t kind = one->report.kind;
        struct tern_report report = one->report;
        report.kind = 0;
        state.report = report;
        __atomic_store_n(&state.report.kind, kind, __ATOMIC_RELEASE);
    }
    CHECK(job_aborted(rt), "PE %d was not told", rt->pe);
    EXPECT_TEXT(rt->abort_reason, one->text);
    CHECK(TERN_ABORT_STATUS(atomic_load(&rt->abort)) == (uint32_t)one->status, "status %u for '%s'",
          TERN_ABORT_STATUS(atomic_load(&rt->abort)), rt->abort_reason);
    rt->state_host = NULL;
    tern_control_watch(rt);
}

/* ---- versions ---------------------------------------------------------------------------------------------------- */

static void other_version(struct job *job, struct tern_rt *rt)
{
    if (rt->pe == *(int *)job->data)
        rt->blob.version = 20304;
}

static void other_check(struct job *job, struct tern_rt *rt)
{
    if (rt->pe == *(int *)job->data) {
        rt->env.check = 1;
        rt->blob.config = tern_env_hash(&rt->env);
    }
}

static void equal_fails(struct job *job, struct tern_rt *rt)
{
    char who[16];
    snprintf(who, sizeof who, "PE %d", *(int *)job->data);
    CHECK(tern_equal_check(rt) == TERN_ERR_VERSION, "PE %d", rt->pe);
    EXPECT_TEXT(tern_last_error(), who);
    EXPECT_TEXT(tern_last_error(), job->blob == other_version ? "2.3.4" : "TERN_CHECK is 1 on");
}

static void equal_holds(struct job *job, struct tern_rt *rt)
{
    (void)job;
    CHECK(tern_equal_check(rt) == TERN_OK, "PE %d: %s", rt->pe, tern_last_error());
}

/* A blob of another layout: nothing but its head can be read. */
static void blob_of_later_version(struct job *job, struct tern_rt *rt, int pe, struct tern_blob *blob)
{
    (void)job;
    if ((rt->pe == 0) != (pe == 0)) {
        blob->bytes += 8;
        blob->version = 10203;
    }
}

static void no_body(struct job *job, struct tern_rt *rt)
{
    (void)job;
    (void)rt;
}

static void versions(void)
{
    int who = 2;
    struct job job = {.n = 20, .body = equal_holds, .data = &who};
    job_run(&job);
    job.body = equal_fails;
    job.blob = other_version;
    job_run(&job);
    job.blob = other_check;
    job_run(&job);
    tern_status_t status[2];
    struct job layout = {.n = 2, .body = no_body, .seen = blob_of_later_version, .status = status};
    job_run(&layout);
    CHECK(status[0] == TERN_ERR_VERSION && status[1] == TERN_ERR_VERSION, "%d %d", status[0], status[1]);
}

int main(void)
{
    uint64_t seed = test_seed();
    static const int dead[] = {0, 17, 3, -1};
    alarm(280);
    tern_log_open(getenv("TEST_VERBOSE") ? TERN_LOG_DEBUG : TERN_LOG_NONE, NULL, -1);
    for (int net = JOB_UNIX; net <= JOB_MIXED; net++) {
        enum job_net kind = (enum job_net)net;
        struct job different = {.n = 20, .net = kind, .seed = seed, .body = mismatch};
        job_run(&different);
        struct job groups = {.n = 4, .net = kind, .body = groups_differ};
        job_run(&groups);
        for (int who = 0; who < 20; who += 19) {
            struct job late = {.n = 20, .net = kind, .timeout_ms = 500, .body = absent, .data = &who};
            job_run(&late);
        }
        for (int who = 0; who < 40; who += 13) {
            struct job flood = {.n = 40, .net = kind, .body = abort_flood, .data = &who};
            job_run(&flood);
            struct job dies = {.n = 40, .net = kind, .body = death_aborts, .data = &who};
            job_run(&dies);
        }
        struct job masked = {
            .n = 40, .net = kind, .on_death = 1, .body = death_masked, .data = (void *)(uintptr_t)dead};
        job_run(&masked);
    }
    struct job fds = {.n = 2, .timeout_ms = 300, .body = fds_absent};
    job_run(&fds);
    for (size_t i = 0; i < sizeof report_cases / sizeof report_cases[0]; i++) {
        struct job report = {.n = 2, .body = device_report, .data = (void *)(uintptr_t)&report_cases[i]};
        job_run(&report);
    }
    versions();
    for (int net = JOB_UNIX; net <= JOB_TCP; net++) {
        struct job silent = {.n = 3, .net = (enum job_net)net, .body = silence};
        job_run(&silent);
    }
    return test_end("control_fail");
}
