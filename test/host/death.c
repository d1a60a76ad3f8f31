/*
 * death.c - a PE dies and nobody but the survivors themselves ends them: `kill -9` of one of 4 PEs at random moments of
 * malloc, put, wait, barrier and finalize. Every survivor must get a status, name the dead PE, finalize, and exit, in 2
 * s (x TERN_TEST_SCALE: the bound is part of the contract); and nothing may be left. Also a PE whose forked child lives
 * on, and one that is only stopped. Argument: number of random points; 0: the seed picks one case of all.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "host/death.h"
#include "host/forked.h"

#define PES 4
#define BOUND_S 2

enum phase { MALLOC, PUT, WAIT, BARRIER, FINALIZE, FINALIZE_LATE, PHASES };
static const char *const phase_names[] = {"malloc",  "put",      "wait",
                                          "barrier", "finalize", "finalize where the dead is late"};

enum child { NO_CHILD, FORKED_CHILD, RAW_CHILD }; /* of the victim, asleep; raw: no handler of fork has run in it */

struct plan {
    int phase, victim, child;
    _Atomic int inside;        /* PEs that are in the phase */
    _Atomic int stop;          /* PEs leave the phase together: the call that is to be the last one */
    _Atomic int children[PES]; /* processes */
    _Atomic int fds[PES];      /* descriptors that are open after tern_finalize, less those before tern_init */
};

static struct forked job;
static struct plan *plan;

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int scale(void)
{
    const char *text = getenv("TERN_TEST_SCALE");
    return text && atoi(text) > 0 ? atoi(text) : 1;
}

/* ---- a PE -------------------------------------------------------------------------------------------------------- */

static void inside(int pe)
{
    if (plan->child && pe == plan->victim) {
        int child = plan->child == RAW_CHILD ? (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : (int)fork();
        if (child == 0) {
            for (;;)
                pause();
        }
        atomic_store(&plan->children[pe], child);
    }
    atomic_fetch_add(&plan->inside, 1);
}

/* Until a call fails; its status. */
static tern_status_t phase_loop(int pe)
{
    tern_status_t status = TERN_OK;
    size_t bytes = 64 << 10;
    void *dst = NULL;
    char *src = NULL;
    tern_ctx_t ctx;

    REQUIRE(tern_ctx(&ctx) == TERN_OK, "%s", tern_last_error());
    if (plan->phase == PUT || plan->phase == WAIT) {
        dst = tern_calloc(1, bytes);
        src = tern_calloc(1, bytes);
        REQUIRE(dst && src, "%s", tern_last_error());
    }
    inside(pe);
    switch (plan->phase) {
    case MALLOC:
        while (status == TERN_OK) {
            void *p = tern_malloc(1000);
            status = p ? tern_free(p) : tern_status();
        }
        break;
    case PUT:
        while (status == TERN_OK) {
            status = death_put(ctx, dst, src, bytes);
            if (status == TERN_OK)
                status = tern_status();
        }
        break;
    case WAIT:
        status = death_wait(ctx, dst, (int *)(void *)src);
        break;
    case BARRIER:
        while (status == TERN_OK && !atomic_load(&plan->stop))
            status = tern_barrier_all();
        break;
    default:
        while (!atomic_load(&plan->stop))
            sched_yield();
        if (plan->phase == FINALIZE_LATE && pe == plan->victim)
            pause();
        break;
    }
    return status;
}

/* Exit status: 50 + the PE that the message names; 49 when tern_finalize had been through before the death. */
static int pe_body(struct forked *j, int pe)
{
    REQUIRE(j->result[pe].status == TERN_OK, "PE %d: %s", pe, tern_last_error());
    tern_status_t status = phase_loop(pe), finalized = tern_finalize();
    int dead = -1;
    if (status == TERN_OK)
        status = finalized;
    forked_note(j, pe, status);
    atomic_store(&plan->fds[pe], forked_fds() - j->result[pe].fds);
    if (status == TERN_OK)
        return 49;
    sscanf(j->result[pe].reason, "PE %d (process", &dead);
    return status == TERN_ERR_PEER_DEAD ? 50 + dead : 48;
}

/* ---- what is left ------------------------------------------------------------------------------------------------ */

static int unix_sockets(const struct forked *j)
{
    char line[512], name[32];
    int count = 0;
    FILE *file = fopen("/proc/net/unix", "r");
    while (file && fgets(line, sizeof line, file)) {
        for (int pe = 0; pe < j->n; pe++) {
            snprintf(name, sizeof name, "@tern-%d-", (int)j->pids[pe]);
            count += strstr(line, name) != NULL;
        }
    }
    if (file)
        fclose(file);
    return count;
}

/* End the victims' children, which are ours since their parents died; true if there is no process left then. */
static bool nothing_runs(void)
{
    for (int pe = 0; pe < PES; pe++) {
        int child = atomic_load(&plan->children[pe]);
        if (child > 0)
            kill(child, SIGKILL);
    }
    while (waitpid(-1, NULL, 0) > 0)
        ;
    return errno == ECHILD;
}

/* ---- one death --------------------------------------------------------------------------------------------------- */

static bool on_cuda(void)
{
    return !strcmp(tern_device_name(), "cuda");
}

static void launch(int phase, int victim, int child)
{
    memset(plan, 0, sizeof *plan);
    plan->phase = phase;
    plan->victim = victim;
    plan->child = child;
    forked_new(&job, PES);
    job.body = pe_body;
    forked_start(&job, 0, PES - 1);
    for (int ms = 0; ms < 30000 * scale() && atomic_load(&plan->inside) < PES; ms++)
        usleep(1000);
    CHECK(atomic_load(&plan->inside) == PES, "%d of %d PEs began", atomic_load(&plan->inside), PES);
}

/* Seconds until the last survivor has exited; survivors that did not are killed. */
static double survivors_wait(int victim, double began)
{
    double limit = began + 5.0 * BOUND_S * scale(), last = began;
    int left = PES - 1;
    bool over[PES] = {false};
    while (left && now() < limit) {
        for (int pe = 0; pe < PES; pe++) {
            if (pe == victim || over[pe] || waitpid(job.pids[pe], &job.exits[pe], WNOHANG) != job.pids[pe])
                continue;
            over[pe] = true;
            left--;
            last = now();
        }
        usleep(500);
    }
    for (int pe = 0; pe < PES; pe++) {
        if (pe != victim && !over[pe]) {
            kill(job.pids[pe], SIGKILL);
            waitpid(job.pids[pe], &job.exits[pe], 0);
            last = now();
        }
    }
    return last - began;
}

static double die(int phase, int victim, int child, unsigned delay_us)
{
    char what[128];
    snprintf(what, sizeof what, "PE %d killed in %s after %u us%s", victim, phase_names[phase], delay_us,
             child == NO_CHILD    ? ""
             : child == RAW_CHILD ? ", raw child"
                                  : ", child");
    launch(phase, victim, child);
    if (phase == FINALIZE || phase == FINALIZE_LATE)
        atomic_store(&plan->stop, 1);
    usleep(delay_us);
    double began = now();
    kill(job.pids[victim], SIGKILL);
    waitpid(job.pids[victim], &job.exits[victim], 0);
    double seconds = survivors_wait(victim, began);

    bool killed = WIFSIGNALED(job.exits[victim]);
    CHECK(killed || phase == FINALIZE, "%s: the victim ended with %#x", what, job.exits[victim]);
    CHECK(seconds <= BOUND_S * scale(), "%s: %.2f s", what, seconds);
    for (int pe = 0; pe < PES; pe++) {
        int status = job.exits[pe], code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (pe == victim)
            continue;
        CHECK(code == 50 + victim || (phase == FINALIZE && code == 49), "%s: PE %d ended with %#x: %s: %s", what, pe,
              status, tern_status_name(job.result[pe].status), job.result[pe].error);
        CHECK(code != 50 + victim || strstr(job.result[pe].reason, " died: "), "%s: '%s'", what, job.result[pe].reason);
        /* the CUDA driver keeps those of its context for the life of the process */
        CHECK(on_cuda() || atomic_load(&plan->fds[pe]) == 0, "%s: PE %d left %d descriptors open", what, pe,
              atomic_load(&plan->fds[pe]));
    }
    /* all sockets are gone, though a child that has inherited everything may still sleep (raw: it keeps its copies) */
    if (child != RAW_CHILD)
        CHECK(unix_sockets(&job) == 0, "%s: %d sockets are left", what, unix_sockets(&job));
    CHECK(nothing_runs(), "%s: processes are left", what);
    CHECK(unix_sockets(&job) == 0, "%s: %d sockets are left", what, unix_sockets(&job));
    return seconds;
}

/* Stopped for longer than three heartbeats, in the middle of barriers: the others wait, and go on with it afterwards.
 */
static void stopped(void)
{
    launch(BARRIER, -1, NO_CHILD);
    kill(job.pids[2], SIGSTOP);
    sleep(5);
    kill(job.pids[2], SIGCONT);
    usleep(50000);
    CHECK(waitpid(-1, NULL, WNOHANG) == 0, "a PE ended because another was stopped");
    kill(job.pids[1], SIGKILL); /* so that all end */
    waitpid(job.pids[1], &job.exits[1], 0);
    survivors_wait(1, now());
    for (int pe = 0; pe < PES; pe++)
        CHECK(pe == 1 || job.exits[pe] == (50 + 1) << 8, "PE %d ended with %#x: %s", pe, job.exits[pe],
              job.result[pe].error);
    CHECK(nothing_runs(), "processes are left");
}

/* One phase at a random moment, or one of the victim's children, or a stopped PE: case 0 to CASES - 1. */
#define CASES (PHASES + 3)

static double one_case(int number, uint64_t *state)
{
    double seconds = 0;
    if (number < PHASES) {
        int victim = (int)(test_random(state) % PES);
        seconds = die(number, victim, NO_CHILD, (unsigned)(test_random(state) % 20000));
    } else if (number < PHASES + 2) {
        int child = number - PHASES + FORKED_CHILD;
        seconds = die(child == RAW_CHILD ? BARRIER : WAIT, 1, child, 5000);
    } else {
        stopped();
    }
    return seconds;
}

int main(int argc, char **argv)
{
    uint64_t seed = test_seed(), state = seed;
    int points = argc > 1 ? atoi(argv[1]) : 8, fds = forked_fds();
    double worst = 0;
    alarm(60 + (unsigned)(points * 12 * scale()));
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    plan = forked_shared(sizeof *plan);
    for (int i = 0; i < points; i++) {
        double seconds = one_case((int)((seed + (uint64_t)i) % PHASES), &state);
        worst = seconds > worst ? seconds : worst;
    }
    int first = points ? PHASES : (int)(seed % CASES), end = points ? CASES : first + 1;
    for (int number = first; number < end; number++)
        one_case(number, &state);
    usleep(300000); /* the threads behind the ids end when all have been served */
    CHECK(forked_fds() == fds, "%d descriptors are left in the parent", forked_fds() - fds);
    if (points)
        printf("longest time from death to the last survivor's exit: %.3f s\n", worst);
    return test_end("death");
}
