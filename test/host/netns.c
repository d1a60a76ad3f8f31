/*
 * netns.c - PEs in two network namespaces of one host, made by the test (root, or a user namespace): the unique id is
 * reached over its addresses, the control planes speak TCP. Loopback does not reach the other namespace, and tern_init
 * says so on every PE; UCX does, and tern_describe tells path and reason. Then one PE is killed at random points of an
 * exchange over UCX, again and again: the survivors, near ones and far ones, end within 2 s with the same reason.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mount.h>
#include <time.h>

#include "host/forked.h"

#define PES 4 /* two in each namespace */
#define KILLS 20
#define VICTIM 3 /* second of its namespace */
#define BOUND_MS 2000

enum { BY_LOOPBACK, BY_UCX, WAYS };
static const char *const transports[WAYS] = {"loopback", "ucx"};

struct shared {
    _Atomic int apart, wired, made; /* namespaces that exist; the link is up; ids that are there */
    tern_unique_id_t id[WAYS];
    struct forked_result result[WAYS][PES];
    char text[PES][8192]; /* tern_describe over UCX */
    _Atomic int without_ucx, kill_made;
    tern_unique_id_t kill_id[KILLS];
    _Atomic uint64_t killed_ms[KILLS]; /* when */
    uint64_t seed, late_ms[PES];       /* longest time from a kill to the end of a survivor */
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

/* ---- death of a PE --------------------------------------------------------------------------------------------------
 */

static uint64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void *killer(void *round)
{
    uint64_t random = shared->seed + (uint64_t)(uintptr_t)round * 7919;
    usleep((useconds_t)(test_random(&random) % 20000));
    atomic_store(&shared->killed_ms[(uintptr_t)round], now_ms());
    kill(getpid(), SIGKILL);
    return NULL;
}

/* Puts to the PE opposite, and meetings, until there is an error; after the first one the victim has not long to live.
 */
static tern_status_t exchange(int pe, int round)
{
    pthread_t thread;
    char *p = tern_calloc(2, 1 << 16);
    tern_status_t status = p ? TERN_OK : tern_status(); /* dead already */
    for (int i = 0; status == TERN_OK && i < 100000; i++) {
        status = tern_put_on_stream(p + (1 << 16), p, 1 << 16, (pe + 2) % PES, NULL);
        if (status == TERN_OK)
            status = tern_barrier_all();
        if (i == 0 && pe == VICTIM)
            pthread_create(&thread, NULL, killer, (void *)(uintptr_t)round);
    }
    return status;
}

static void kill_run(int pe, int round)
{
    tern_init_attr_t attr = {.size = sizeof attr, .id = &shared->kill_id[round], .pe = pe, .n_pes = PES, .gpu = -1};

    if (pe == 0) {
        CHECK(tern_get_unique_id(&shared->kill_id[round]) == TERN_OK, "%s", tern_last_error());
        atomic_fetch_add(&shared->kill_made, 1);
    }
    await(&shared->kill_made, round + 1);
    if (tern_init_attr(&attr) != TERN_OK) {
        CHECK(0, "kill %d, PE %d: %s", round, pe, tern_last_error());
        return;
    }
    tern_status_t status = exchange(pe, round);
    uint64_t killed = atomic_load(&shared->killed_ms[round]), late = now_ms() - killed;
    CHECK(status == TERN_ERR_PEER_DEAD, "kill %d, PE %d got %s: %s", round, pe, tern_status_name(status),
          tern_last_error());
    CHECK(strstr(tern_abort_reason(), "PE 3 "), "kill %d, PE %d: the reason is '%s'", round, pe, tern_abort_reason());
    CHECK(killed && late < BOUND_MS, "kill %d, PE %d ended after %llu ms", round, pe, (unsigned long long)late);
    if (late > shared->late_ms[pe])
        shared->late_ms[pe] = late;
    CHECK(tern_finalize() == TERN_OK, "kill %d, PE %d: %s", round, pe, tern_last_error());
}

/* ---- processes ------------------------------------------------------------------------------------------------------
 */

/* The second PE of a namespace, once for each job, as the first's child; it leaves with what it found, or is killed. */
static void second_run(int pe, int round)
{
    for (int way = 0; round < 0 && way < WAYS; way++)
        pe_run(pe, way);
    if (round >= 0)
        kill_run(pe, round);
    fflush(stdout);
    exit(test_failures ? 1 : 0);
}

/* Its end of the link carries, which comes a little after it is up. */
static void await_carrier(void)
{
    for (int ms = 0; ms < 5000; ms++) {
        for (int i = 0; i < 2; i++) {
            char path[64], state = '0';
            snprintf(path, sizeof path, "/sys/class/net/tern%d/operstate", i);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd >= 0 && read(fd, &state, 1) == 1 && state == 'u')
                ms = 5000;
            if (fd >= 0)
                close(fd);
        }
        usleep(1000);
    }
}

/* The first PE of a namespace makes it. */
static void namespace_main(int first)
{
    if (unshare(CLONE_NEWNET | CLONE_NEWNS))
        exit(TEST_SKIP);
    /* as between hosts, not by the memory of this one; UCX looks for networks in /sys, which shows those of who mounted
     * it */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("sysfs", "/sys", "sysfs", 0, NULL) == 0)
        setenv("UCX_TLS", "tcp,self", 1);
    atomic_fetch_add(&shared->apart, 1);
    await(&shared->wired, 1);
    await_carrier();
    for (int round = -1; round < KILLS && !atomic_load(&shared->without_ucx); round++) {
        pid_t second = fork();
        int status = 0;
        if (second == 0)
            second_run(first + 1, round);
        for (int way = 0; round < 0 && way < WAYS; way++)
            pe_run(first, way);
        if (round < 0 && shared->result[BY_UCX][first].status != TERN_OK)
            atomic_store(&shared->without_ucx, 1);
        if (round >= 0)
            kill_run(first, round);
        waitpid(second, &status, 0);
        bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        CHECK(round >= 0 && first + 1 == VICTIM ? killed : status == 0, "PE %d, round %d: status %#x", first + 1, round,
              status);
    }
    fflush(stdout);
    exit(test_failures ? 1 : 0);
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
    shared->seed = test_seed();
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
    uint64_t late = 0;
    for (int pe = 0; pe < PES; pe++)
        late = shared->late_ms[pe] > late ? shared->late_ms[pe] : late;
    if (!atomic_load(&shared->without_ucx))
        printf("netns: %d kills, the last survivor ended %llu ms after one\n", KILLS, (unsigned long long)late);
    return test_end("netns");
}
