/*
 * uid.c - the unique-id bootstrap: jobs of forked processes, who comes wrongly or not at all, strangers; differing
 * configurations; and what becomes of processes that a launcher started without PMIx. Links the library's inside to
 * speak to the meeting and to make control calls.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "host/bootstrap/uid.h"
#include "host/forked.h"
#include "host/rt.h"

static struct forked job;

#define RESULT(pe, expected, text)                                                                                     \
    do {                                                                                                               \
        CHECK(job.result[pe].status == (expected), "PE %d got %s: %s", pe, tern_status_name(job.result[pe].status),    \
              job.result[pe].error);                                                                                   \
        CHECK(strstr(job.result[pe].error, text), "PE %d: '%s' lacks '%s'", pe, job.result[pe].error, text);           \
    } while (0)

/* ---- all is well ------------------------------------------------------------------------------------------------- */

static int use_body(struct forked *j, int pe)
{
    tern_info_t info = {.size = sizeof info};
    REQUIRE(j->result[pe].status == TERN_OK, "PE %d: %s", pe, tern_last_error());
    CHECK(tern_my_pe() == pe && tern_n_pes() == j->n && tern_node_n_pes() == j->n && tern_node_pe() == pe, "numbers");
    CHECK(tern_get_info(&info) == TERN_OK && !strcmp(info.bootstrap, "uid"), "%s", info.bootstrap);
    for (int i = 0; i < 5; i++)
        CHECK(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    CHECK(tern_malloc(1000), "%s", tern_last_error());
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    return 0;
}

static void sizes(void)
{
    static const int all[] = {1, 2, 3, 7};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        forked_new(&job, all[i]);
        job.body = use_body;
        forked_start(&job, 0, all[i] - 1);
        forked_wait(&job);
        forked_good(&job, "use");
    }
}

/* 40 PEs: a tree of two levels of real processes; groups that all PEs draw alike, sums that can be told beforehand. */
static int tree_body(struct forked *j, int pe)
{
    struct tern_rt *rt = tern_rt_current;
    enum tern_reduce op = TERN_REDUCE_SUM;
    uint64_t state = *(uint64_t *)j->data;
    REQUIRE(rt, "PE %d: %s", pe, tern_last_error());
    for (int round = 1; round <= 60; round++) {
        int pes[FORKED_MAX], count = 0;
        uint64_t sum = 0, odds = test_random(&state) % 8, word = 0, salt = test_random(&state) % 1000;
        uint32_t seq = 0;
        bool member = false;
        for (int p = 0; p < j->n; p++) {
            if (test_random(&state) % 8 < odds)
                continue;
            pes[count++] = p;
            sum += (uint64_t)p * salt + 1;
            member |= p == pe;
        }
        struct tern_group group = {pes, count, (uint32_t)round, &seq};
        if (!member)
            continue;
        word = (uint64_t)pe * salt + 1;
        CHECK(tern_control_allreduce(rt, &group, &word, 1, &op) == TERN_OK, "PE %d: %s", pe, tern_last_error());
        CHECK(word == sum, "PE %d: %llu instead of %llu", pe, (unsigned long long)word, (unsigned long long)sum);
        CHECK(tern_control_barrier(rt, &group) == TERN_OK, "PE %d: %s", pe, tern_last_error());
    }
    CHECK(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    return 0;
}

static void tree(uint64_t seed)
{
    forked_new(&job, 40);
    job.body = tree_body;
    job.data = &seed;
    forked_start(&job, 0, 39);
    forked_wait(&job);
    forked_good(&job, "tree");
}

/* ---- who comes wrongly ------------------------------------------------------------------------------------------- */

static void missing(void)
{
    forked_new(&job, 4);
    setenv("TERN_TIMEOUT_MS", "400", 1);
    forked_start(&job, 0, 1);
    unsetenv("TERN_TIMEOUT_MS");
    forked_wait(&job);
    for (int pe = 0; pe < 2; pe++)
        RESULT(pe, TERN_ERR_TIMEOUT, "PE 2 3 have not come within 400 ms (2 of 4 PEs are there)");
}

static void twice(void)
{
    forked_new(&job, 3);
    job.claim_pe[2] = 1 + 1;
    forked_start(&job, 0, 2);
    forked_wait(&job);
    /* whoever came before the second PE 1 is told; PE 1 itself in any case */
    RESULT(1, TERN_ERR_INVALID, "two processes came as PE 1");
    RESULT(2, TERN_ERR_INVALID, "two processes came as PE 1");
}

static void numbers_differ(void)
{
    forked_new(&job, 2);
    job.claim_n[1] = 3;
    forked_start(&job, 0, 1);
    forked_wait(&job);
    RESULT(0, TERN_ERR_INVALID, "all must say the same");
    RESULT(1, TERN_ERR_INVALID, "all must say the same");

    forked_new(&job, 2);
    job.claim_pe[0] = 2 + 1;
    forked_start(&job, 0, 0);
    forked_wait(&job);
    RESULT(0, TERN_ERR_INVALID, "PE 2 of 2 is out of range");
}

static void wrong_ids(void)
{
    tern_unique_id_t junk;
    tern_init_attr_t attr = {.size = sizeof attr, .id = &junk, .n_pes = 1, .gpu = -1};
    memset(&junk, 0x5a, sizeof junk);
    CHECK(tern_init_attr(&attr) == TERN_ERR_INVALID && strstr(tern_last_error(), "was not made by"), "%s",
          tern_last_error());

    /* an id starts one runtime */
    forked_new(&job, 1);
    forked_start(&job, 0, 0);
    forked_wait(&job);
    RESULT(0, TERN_OK, "");
    attr.id = &job.id;
    CHECK(tern_init_attr(&attr) == TERN_ERR_BOOTSTRAP && strstr(tern_last_error(), "an id starts one runtime only"),
          "%s", tern_last_error());
    CHECK(!tern_initialized(), "nothing runs");
}

/* ---- strangers --------------------------------------------------------------------------------------------------- */

static int dial(void)
{
    struct tern_uid uid;
    memcpy(&uid, &job.id, sizeof uid);
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(uid.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0 && !connect(fd, (struct sockaddr *)&in, sizeof in), "connect: %s", strerror(errno));
    return fd;
}

static struct tern_uid_hello hello(int pe, int n)
{
    struct tern_uid uid;
    struct tern_uid_hello h = {.magic = TERN_UID_MAGIC, .blob_bytes = sizeof(struct tern_blob), .pe = pe, .n_pes = n};
    memcpy(&uid, &job.id, sizeof uid);
    memcpy(h.token, uid.token, sizeof h.token);
    return h;
}

static void strangers(void)
{
    int silent[20];
    char answer;
    forked_new(&job, 3);
    job.body = use_body;
    forked_start(&job, 0, 0);
    for (int i = 0; i < 20; i++)
        silent[i] = dial();
    for (int bit = 0; bit < 128; bit += 25) {
        struct tern_uid_hello h = hello(1, 3);
        h.token[bit / 8] ^= (unsigned char)(1 << bit % 8);
        int fd = dial();
        CHECK(send(fd, &h, sizeof h, MSG_NOSIGNAL) == sizeof h, "send");
        CHECK(recv(fd, &answer, 1, 0) <= 0, "a wrong token was answered");
        close(fd);
    }
    int fd = dial();
    CHECK(send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL) == 18, "send");
    forked_start(&job, 1, 2);
    forked_wait(&job);
    forked_good(&job, "strangers");
    close(fd);
    for (int i = 0; i < 20; i++)
        close(silent[i]);
}

/* A PE that ends between its two messages. */
static void leaves_early(void)
{
    forked_new(&job, 3);
    forked_start(&job, 0, 1);
    struct tern_uid_hello h = hello(2, 3);
    int fd = dial();
    CHECK(send(fd, &h, sizeof h, MSG_NOSIGNAL) == sizeof h, "send");
    usleep(100000);
    close(fd);
    forked_wait(&job);
    RESULT(0, TERN_ERR_BOOTSTRAP, "PE 2 ended before all PEs had met");
    RESULT(1, TERN_ERR_BOOTSTRAP, "PE 2 ended before all PEs had met");
}

static void other_library(void)
{
    forked_new(&job, 2);
    forked_start(&job, 0, 0);
    usleep(100000);
    struct tern_uid_hello h = hello(1, 2);
    h.blob_bytes += 16;
    int fd = dial();
    CHECK(send(fd, &h, sizeof h, MSG_NOSIGNAL) == sizeof h, "send");
    forked_wait(&job);
    close(fd);
    RESULT(0, TERN_ERR_VERSION, "PE 1 has another library version");
}

/* ---- configurations ---------------------------------------------------------------------------------------------- */

static void configurations(void)
{
    static const struct {
        const char *name, *value;
        tern_status_t status;
        const char *text;
    } cases[] = {
        {"TERN_CHECK", "1", TERN_ERR_VERSION, "TERN_CHECK is 1 on PE 1 and 0 on PE 0"},
        {"TERN_ON_DEATH", "mask", TERN_ERR_VERSION, "TERN_ON_DEATH is mask on PE 1 and abort on PE 0"},
        {"TERN_HEAP_SIZE", "4M", TERN_ERR_VERSION, "TERN_HEAP_SIZE is 4M on PE 1 and 0 on PE 0"},
        {"TERN_CHECK", "perhaps", TERN_ERR_CONFIG, "TERN_CHECK=perhaps is not allowed; allowed: 0|1"},
        {"TERN_LOG_FILE", "/no/such/file", TERN_ERR_CONFIG, "TERN_LOG_FILE=/no/such/file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forked_new(&job, 3);
        job.set[1][0] = cases[i].name;
        job.set[1][1] = cases[i].value;
        forked_start(&job, 0, 2);
        forked_wait(&job);
        for (int pe = 0; pe < 3; pe++)
            RESULT(pe, cases[i].status, cases[i].text);
    }
}

/* ---- processes that a launcher without PMIx started -------------------------------------------------------------- */

static void accidental(int stale)
{
    static const char *const names[] = {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"};
    if (stale) /* of a launcher that is gone: PMIx itself says that it reaches nobody */
        setenv("PMIX_NAMESPACE", "nobody.1", 1), setenv("PMIX_RANK", "0", 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[64];
        setenv(names[i], "4", 1);
        snprintf(text, sizeof text, "4 processes (%s=4)", names[i]);
        CHECK(tern_init() == TERN_ERR_LAUNCHER && strstr(tern_last_error(), text), "%s", tern_last_error());
        CHECK(strstr(tern_last_error(), "srun --mpi=pmix") && strstr(tern_last_error(), "tern_init_attr") &&
                  strstr(tern_last_error(), "TERN_BOOTSTRAP=singleton"),
              "%s", tern_last_error());
        setenv("TERN_BOOTSTRAP", "singleton", 1);
        CHECK(tern_init() == TERN_OK && tern_n_pes() == 1, "%s", tern_last_error());
        CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
        unsetenv("TERN_BOOTSTRAP");
        setenv(names[i], "1", 1);
        CHECK(tern_init() == TERN_OK && tern_n_pes() == 1, "%s", tern_last_error());
        CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
        unsetenv(names[i]);
    }
    setenv("TERN_BOOTSTRAP", "pmix", 1);
    tern_status_t status = tern_init();
    CHECK(status == TERN_ERR_BOOTSTRAP || (status == TERN_ERR_LAUNCHER && strstr(tern_last_error(), "without PMIx")),
          "%s", tern_last_error());
    unsetenv("TERN_BOOTSTRAP");
}

/* PMIx that fails leaks: not in this process. A forked child of a process that has used CUDA cannot use it. */
static void accidental_stale(void)
{
    int status = -1;
    if (!strcmp(tern_device_name(), "cuda"))
        return;
    pid_t child = fork();
    if (child == 0) {
        test_failures = 0;
        accidental(1);
        _exit(test_failures ? 1 : 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "with a stale launcher: %#x", status);
}

/* ---- fork and exit ----------------------------------------------------------------------------------------------- */

static int forks_body(struct forked *j, int pe)
{
    REQUIRE(j->result[pe].status == TERN_OK, "%s", tern_last_error());
    pid_t child = fork();
    if (child == 0) {
        bool right = !tern_initialized() && tern_my_pe() == -1 && tern_finalize() == TERN_ERR_STATE &&
                     tern_barrier_all() == TERN_ERR_STATE;
        exit(right ? 0 : 5); /* with all exit handlers */
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", status);
    for (int i = 0; i < 5; i++)
        CHECK(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    return 0;
}

static int exits_body(struct forked *j, int pe)
{
    REQUIRE(j->result[pe].status == TERN_OK, "%s", tern_last_error());
    tern_status_t status = tern_barrier_all();
    if (pe == 1)
        return 0; /* exit() without tern_finalize */
    while (status == TERN_OK)
        status = tern_barrier_all();
    CHECK(status == TERN_ERR_PEER_DEAD && strstr(tern_last_error(), "PE 1 (process"), "%s", tern_last_error());
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    return 0;
}

static void fork_and_exit(void)
{
    forked_new(&job, 3);
    job.body = forks_body;
    forked_start(&job, 0, 2);
    forked_wait(&job);
    forked_good(&job, "fork");

    forked_new(&job, 3);
    job.body = exits_body;
    forked_start(&job, 0, 2);
    forked_wait(&job);
    forked_good(&job, "exit without finalize");
}

int main(void)
{
    static const char *const launcher[] = {"PMIX_NAMESPACE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS",
                                           "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"};
    uint64_t seed = test_seed();
    alarm(110);
    for (size_t i = 0; i < sizeof launcher / sizeof *launcher; i++)
        unsetenv(launcher[i]);
    sizes();
    tree(seed);
    missing();
    twice();
    numbers_differ();
    wrong_ids();
    strangers();
    leaves_early();
    other_library();
    configurations();
    fork_and_exit();
    accidental(0);
    accidental_stale();
    return test_end("uid");
}
