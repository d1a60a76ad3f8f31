/*
 * netns.c - PEs in two network namespaces of one host, made by the test (root, or a user namespace): the unique id is
 * reached over its addresses, the control planes speak TCP. Loopback does not reach the other namespace, and tern_init
 * says so on every PE; UCX does, and tern_describe tells path and reason.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "host/forked.h"

#define PES 4 /* two in each namespace */

enum { BY_LOOPBACK, BY_UCX, WAYS };
static const char *const transports[WAYS] = {"loopback", "ucx"};

struct shared {
    _Atomic int apart, wired, made; /* namespaces that exist; the link is up; ids that are there */
    tern_unique_id_t id[WAYS];
    struct forked_result result[WAYS][PES];
    char text[PES][8192]; /* tern_describe over UCX */
};

static struct shared *shared;
static struct forked job;

static void write_file(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = write(fd, text, strlen(text));
        (void)n;
        close(fd);
    }
}

/* As root, or as root of a user namespace of our own. */
static bool may_make_namespaces(void)
{
    char map[64];
    unsigned uid = (unsigned)geteuid(), gid = (unsigned)getegid();
    if (uid == 0)
        return true;
    if (unshare(CLONE_NEWUSER))
        return false;
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", uid);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", gid);
    write_file("/proc/self/gid_map", map);
    return true;
}

static void await(_Atomic int *word, int value)
{
    for (int ms = 0; ms < 20000 && atomic_load(word) < value; ms++)
        usleep(1000);
}

/* One job of all PEs. */
static void pe_run(int pe, int way)
{
    struct forked_result *result = &shared->result[way][pe];
    tern_init_attr_t attr = {.size = sizeof attr, .id = &shared->id[way], .pe = pe, .n_pes = PES, .gpu = -1};

    setenv("TERN_TRANSPORT", transports[way], 1);
    if (pe == 0) {
        result->status = tern_get_unique_id(&shared->id[way]);
        atomic_fetch_add(&shared->made, 1);
    }
    await(&shared->made, way + 1);
    result->status = tern_init_attr(&attr);
    snprintf(result->error, sizeof result->error, "%s", tern_last_error());
    if (result->status != TERN_OK)
        return;
    tern_describe(shared->text[pe], sizeof shared->text[pe], 1);
    void *p = tern_calloc(1, 1 << 20);
    CHECK(p && !tern_ptr(p, (pe + 2) % PES) && tern_ptr(p, pe ^ 1), "PE %d: %s", pe, tern_last_error());
    CHECK(tern_barrier_all() == TERN_OK && tern_quiet() == TERN_OK, "PE %d: %s", pe, tern_last_error());
    CHECK(tern_free(p) == TERN_OK && tern_finalize() == TERN_OK, "PE %d: %s", pe, tern_last_error());
}

/* The first PE of a namespace makes it; the second is its child. */
static void namespace_main(int first)
{
    if (unshare(CLONE_NEWNET))
        exit(TEST_SKIP);
    atomic_fetch_add(&shared->apart, 1);
    await(&shared->wired, 1);
    pid_t second = fork();
    for (int way = 0; way < WAYS; way++)
        pe_run(second ? first : first + 1, way);
    int status = 0;
    if (second)
        waitpid(second, &status, 0);
    fflush(stdout);
    exit(status || test_failures ? 1 : 0);
}

static bool run(const char *format, int a, int b)
{
    char command[512];
    snprintf(command, sizeof command, format, a, b);
    return system(command) == 0;
}

static bool wire(int a, int b)
{
    return run("nsenter -t %d -n ip link add tern0 type veth peer name tern1 netns %d", a, b) &&
           run("nsenter -t %d -n sh -c 'ip addr add 10.98.%d.1/24 dev tern0 && ip link set tern0 up && ip link set lo "
               "up'",
               a, 7) &&
           run("nsenter -t %d -n sh -c 'ip addr add 10.98.%d.2/24 dev tern1 && ip link set tern1 up && ip link set lo "
               "up'",
               b, 7);
}

int main(void)
{
    alarm(60);
    if (system("command -v ip >/dev/null && command -v nsenter >/dev/null") || !may_make_namespaces()) {
        printf("netns: skipped: needs ip, nsenter, and the right to make network namespaces\n");
        return TEST_SKIP;
    }
    shared = forked_shared(sizeof *shared);
    forked_new(&job, PES);
    for (int first = 0; first < PES; first += 2) {
        job.pids[first] = fork();
        REQUIRE(job.pids[first] >= 0, "fork");
        if (job.pids[first] == 0)
            namespace_main(first);
    }
    await(&shared->apart, 2);
    bool wired = atomic_load(&shared->apart) == 2 && wire(job.pids[0], job.pids[2]);
    if (!wired) {
        for (int first = 0; first < PES; first += 2)
            kill(job.pids[first], SIGKILL);
        forked_wait(&job);
        printf("netns: skipped: cannot make two network namespaces with a link between them\n");
        return TEST_SKIP;
    }
    atomic_store(&shared->wired, 1);
    forked_wait(&job);
    forked_good(&job, "netns");
    for (int pe = 0; pe < PES; pe++) {
        const struct forked_result *by_loopback = &shared->result[BY_LOOPBACK][pe],
                                   *by_ucx = &shared->result[BY_UCX][pe];
        CHECK(by_loopback->status == TERN_ERR_UNREACHABLE && strstr(by_loopback->error, "loopback: PE 2: "),
              "PE %d got %s: %s", pe, tern_status_name(by_loopback->status), by_loopback->error);
        if (by_ucx->status == TERN_ERR_UNREACHABLE && strstr(by_ucx->error, "UCX")) {
            printf("netns: without UCX: %s\n", by_ucx->error);
            continue;
        }
        CHECK(by_ucx->status == TERN_OK, "PE %d got %s: %s", pe, tern_status_name(by_ucx->status), by_ucx->error);
        CHECK(strstr(shared->text[pe], "\"path\":\"proxy\",\"why\":\"in another network namespace of this host\","
                                       "\"transport\":\"ucx\""),
              "PE %d: '%s'", pe, shared->text[pe]);
    }
    return test_end("netns");
}
