/*
 * life.c - the life of the runtime on any number of PEs: calls at the wrong time, three starts in a row, what the PEs
 * learn of each other, contexts, job abort and a new start after it, collective calls that do not match. Public API
 * only.
 */
#include <unistd.h>

#include "common/check.h"
#include <tern/tern.h>

static void check_error(tern_status_t got, tern_status_t expected, const char *text, const char *what)
{
    CHECK(got == expected, "%s gave %s: %s", what, tern_status_name(got), tern_last_error());
    CHECK(strstr(tern_last_error(), text), "%s: '%s' lacks '%s'", what, tern_last_error(), text);
}

static void without_runtime(void)
{
    tern_ctx_t ctx;
    tern_info_t info = {.size = sizeof info};
    char text[400];

    CHECK(!tern_initialized(), "nothing runs");
    CHECK(tern_my_pe() == -1 && tern_n_pes() == -1 && tern_node_pe() == -1 && tern_node_n_pes() == -1, "numbers");
    check_error(tern_finalize(), TERN_ERR_STATE, "tern_finalize: no runtime is running; call tern_init first",
                "finalize");
    check_error(tern_ctx(&ctx), TERN_ERR_STATE, "tern_init first", "ctx");
    check_error(tern_get_info(&info), TERN_ERR_STATE, "tern_init first", "info");
    check_error(tern_barrier_all(), TERN_ERR_STATE, "tern_barrier_all", "barrier");
    check_error(tern_quiet(), TERN_ERR_STATE, "tern_quiet", "quiet");
    check_error(tern_abort("x"), TERN_ERR_STATE, "tern_abort", "abort");
    CHECK(tern_status() == TERN_ERR_STATE, "status");
    CHECK(!tern_malloc(8), "malloc");
    check_error(tern_free(&ctx), TERN_ERR_STATE, "tern_free", "free");
    CHECK(tern_describe(text, sizeof text, 0) == strlen(text) && strstr(text, "no runtime"), "%s", text);
    CHECK(tern_describe(text, sizeof text, 1) == strlen(text) && strstr(text, "\"running\":false"), "%s", text);
}

static void wrong_arguments(void)
{
    tern_init_attr_t attr = {.size = 3};
    check_error(tern_init_attr(&attr), TERN_ERR_INVALID, "`size` is 3", "attr");
    check_error(tern_get_unique_id(NULL), TERN_ERR_INVALID, "NULL", "unique id");
    CHECK(!tern_initialized(), "nothing runs");
}

static void twice(void)
{
    check_error(tern_init(), TERN_ERR_STATE, "tern_finalize first", "a second init");
    CHECK(tern_initialized(), "the first one runs");
}

static void facts(void)
{
    tern_info_t info, part;
    memset(&info, 0x77, sizeof info);
    info.size = sizeof info;
    CHECK(tern_get_info(&info) == TERN_OK, "%s", tern_last_error());
    CHECK(info.size == sizeof info && info.pe == tern_my_pe() && info.n_pes == tern_n_pes(), "numbers");
    CHECK(info.node_pe == tern_node_pe() && info.node_n_pes == tern_node_n_pes(), "numbers of the node");
    CHECK(info.pe >= 0 && info.pe < info.n_pes && info.node_pe >= 0 && info.node_pe < info.node_n_pes, "ranges");
    CHECK(info.near_pes == info.n_pes, "%d of %d PEs are near", info.near_pes, info.n_pes);
    CHECK(info.sms > 0 && info.sharers > 0 && *info.device && info.heap_max > 0, "the device");
    CHECK(info.n_pes > 1 ? !strcmp(info.bootstrap, "pmix") || !strcmp(info.bootstrap, "uid") : *info.bootstrap != 0,
          "%s", info.bootstrap);

    /* a program with older headers */
    memset(&part, 0x77, sizeof part);
    part.size = offsetof(tern_info_t, node_pe);
    CHECK(tern_get_info(&part) == TERN_OK && part.n_pes == info.n_pes && part.node_pe == 0x77777777, "a part");
    part.size = 0;
    check_error(tern_get_info(&part), TERN_ERR_INVALID, "size", "no size");

    size_t bytes = tern_describe(NULL, 0, 0);
    char *text = malloc(bytes + 1);
    CHECK(tern_describe(text, bytes + 1, 0) == bytes && strlen(text) == bytes, "length of the description");
    CHECK(strstr(text, info.device) && strstr(text, info.bootstrap) && strstr(text, "self"), "%s", text);
    free(text);
}

static void contexts(void)
{
    tern_ctx_t ctx;
    CHECK(tern_ctx(&ctx) == TERN_OK, "%s", tern_last_error());
    CHECK(ctx.my_pe == tern_my_pe() && ctx.n_pes == tern_n_pes() && ctx.generation, "numbers");
    CHECK(ctx.heap && ctx.stride && ctx.state, "bases");
    check_error(tern_ctx_fill(&ctx, sizeof ctx - 8, TERN_ABI_VERSION), TERN_ERR_VERSION, "headers", "another size");
    check_error(tern_ctx_fill(&ctx, sizeof ctx, TERN_ABI_VERSION + 1), TERN_ERR_VERSION, "headers", "another ABI");
    check_error(tern_ctx_fill(NULL, sizeof ctx, TERN_ABI_VERSION), TERN_ERR_INVALID, "NULL", "no context");
}

/* One PE ends too early: nothing happens to anybody, and the next call is right again. */
static void mismatch(void)
{
    int me = tern_my_pe(), last = tern_n_pes() - 1;
    if (last == 0)
        return;
    for (int round = 0; round < 3; round++) {
        if (me == last)
            check_error(tern_finalize(), TERN_ERR_MISMATCH, "tern_finalize", "finalize where others meet");
        else
            check_error(tern_barrier_all(), TERN_ERR_MISMATCH, "tern_finalize", "barrier where one ends");
        CHECK(tern_initialized(), "still running");
        CHECK(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
        void *p = tern_malloc(me == 0 ? 64 : 128);
        CHECK(!p, "different sizes");
        CHECK(strstr(tern_last_error(), "64") && strstr(tern_last_error(), "128"), "%s", tern_last_error());
    }
}

static void abort_all(int round)
{
    int who = round % tern_n_pes();
    char reason[64];
    tern_status_t status = TERN_OK;
    snprintf(reason, sizeof reason, "PE %d called tern_abort: enough of round %d", who, round);
    CHECK(tern_status() == TERN_OK && !*tern_abort_reason(), "not yet");
    if (tern_my_pe() == who) {
        usleep(20000);
        CHECK(tern_abort(strchr(reason, ':') + 2) == TERN_OK, "%s", tern_last_error());
    }
    while (status == TERN_OK)
        status = tern_barrier_all();
    check_error(status, TERN_ERR_ABORTED, reason, "barrier");
    CHECK(tern_status() == TERN_ERR_ABORTED, "status");
    CHECK(!strcmp(tern_abort_reason(), reason), "'%s'", tern_abort_reason());
    CHECK(!tern_malloc(8) && strstr(tern_last_error(), reason), "malloc: %s", tern_last_error());
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    CHECK(!strcmp(tern_abort_reason(), reason), "after finalize: '%s'", tern_abort_reason());
    CHECK(!tern_initialized(), "ended");
}

int main(void)
{
    uint32_t generation = 0;
    int pe = -1, n_pes = -1;
    alarm(100);
    without_runtime();
    wrong_arguments();
    for (int round = 0; round < 6; round++) {
        tern_ctx_t ctx;
        REQUIRE(tern_init() == TERN_OK, "round %d: %s", round, tern_last_error());
        CHECK(!*tern_abort_reason(), "a new start: '%s'", tern_abort_reason());
        CHECK(round == 0 || (tern_my_pe() == pe && tern_n_pes() == n_pes), "the same PE");
        pe = tern_my_pe();
        n_pes = tern_n_pes();
        twice();
        facts();
        contexts();
        CHECK(tern_ctx(&ctx) == TERN_OK && ctx.generation > generation, "a new generation");
        generation = ctx.generation;
        for (int i = 0; i < 10; i++)
            CHECK(tern_barrier_all() == TERN_OK && tern_quiet() == TERN_OK, "%s", tern_last_error());
        mismatch();
        CHECK(tern_malloc(1000), "%s", tern_last_error()); /* left over on purpose */
        if (round >= 3) {
            abort_all(round);
        } else {
            CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
            CHECK(!*tern_abort_reason(), "'%s'", tern_abort_reason());
        }
        without_runtime();
    }
    return test_end("life");
}
