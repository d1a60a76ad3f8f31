/*
 * forked.h - jobs of forked processes that meet by a unique id, with nobody above them: no launcher that would kill the
 * others when one dies. The test program makes the ids and is no PE. Results come back through shared memory.
 */
#ifndef TEST_HOST_FORKED_H
#define TEST_HOST_FORKED_H

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/check.h"
#include <tern/tern.h>

#define FORKED_MAX 64

struct forked_result {
    tern_status_t status;
    char error[1024], reason[600];
    int fds; /* open descriptors before tern_init_attr */
};

struct forked {
    int n; /* PEs */
    tern_unique_id_t id;
    pid_t pids[FORKED_MAX];
    int exits[FORKED_MAX];                         /* wait status */
    struct forked_result *result;                  /* [FORKED_MAX], shared */
    const char *set[FORKED_MAX][2];                /* a variable of one PE: name, value */
    int (*body)(struct forked *job, int pe);       /* after tern_init_attr, whatever it returned; the exit status */
    void *data;                                    /* shared by fork */
    int claim_pe[FORKED_MAX], claim_n[FORKED_MAX]; /* what a PE says it is, where not 0: number + 1, PEs */
};

/* Open descriptors of this process. */
static inline int forked_fds(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

static inline void *forked_shared(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED, "mmap");
    return p;
}

static inline void forked_note(struct forked *job, int pe, tern_status_t status)
{
    struct forked_result *result = &job->result[pe];
    result->status = status;
    snprintf(result->error, sizeof result->error, "%s", tern_last_error());
    snprintf(result->reason, sizeof result->reason, "%s", tern_abort_reason());
}

static inline void forked_child(struct forked *job, int pe)
{
    tern_init_attr_t attr = {.size = sizeof attr, .id = &job->id, .pe = pe, .n_pes = job->n, .gpu = -1};
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (job->claim_pe[pe])
        attr.pe = job->claim_pe[pe] - 1;
    if (job->claim_n[pe])
        attr.n_pes = job->claim_n[pe];
    if (job->set[pe][0])
        setenv(job->set[pe][0], job->set[pe][1], 1);
    test_failures = 0;
    job->result[pe].fds = forked_fds();
    tern_status_t status = tern_init_attr(&attr);
    forked_note(job, pe, status);
    int code = job->body ? job->body(job, pe) : 0;
    fflush(stdout);
    exit(code ? code : test_failures ? 1 : 0);
}

static inline void forked_new(struct forked *job, int n)
{
    struct forked_result *result = job->result;
    memset(job, 0, sizeof *job);
    job->n = n;
    job->result = result ? result : (struct forked_result *)forked_shared(sizeof *result * FORKED_MAX);
    memset(job->result, 0, sizeof *result * FORKED_MAX);
}

/*
 * Start PEs `first` to `last`; with 0 comes an id, made when all have been forked: its thread might hold the allocator's
 * lock, and a child forked then would wait for it for ever (AddressSanitizer).
 */
static inline void forked_start(struct forked *job, int first, int last)
{
    int gate[2];
    REQUIRE(first > 0 || pipe(gate) == 0, "pipe: %s", strerror(errno));
    fflush(stdout);
    for (int pe = first; pe <= last; pe++) {
        job->pids[pe] = fork();
        REQUIRE(job->pids[pe] >= 0, "fork: %s", strerror(errno));
        if (job->pids[pe])
            continue;
        if (first == 0) {
            close(gate[1]);
            REQUIRE(read(gate[0], &job->id, sizeof job->id) == sizeof job->id, "no id");
            close(gate[0]);
        }
        forked_child(job, pe);
    }
    if (first > 0)
        return;
    close(gate[0]);
    REQUIRE(tern_get_unique_id(&job->id) == TERN_OK, "%s", tern_last_error());
    for (int pe = first; pe <= last; pe++)
        REQUIRE(write(gate[1], &job->id, sizeof job->id) == sizeof job->id, "write: %s", strerror(errno));
    close(gate[1]);
}

/* Wait for all that were started. */
static inline void forked_wait(struct forked *job)
{
    for (int pe = 0; pe < FORKED_MAX; pe++) {
        if (job->pids[pe] > 0)
            CHECK(waitpid(job->pids[pe], &job->exits[pe], 0) == job->pids[pe], "waitpid");
    }
}

/* Every started PE exited with 0. */
static inline void forked_good(struct forked *job, const char *what)
{
    for (int pe = 0; pe < FORKED_MAX; pe++)
        CHECK(job->pids[pe] <= 0 || job->exits[pe] == 0, "%s: PE %d ended with wait status %#x: %s: %s", what, pe,
              job->exits[pe], tern_status_name(job->result[pe].status), job->result[pe].error);
}

#endif
