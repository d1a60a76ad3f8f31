/* env.c - the parser of TERN_* variables against good and bad values of every kind, the warning of unknown names, the
 * log. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/check.h"
#include "host/env.h"
#include "host/log.h"
#include <tern/tern.h>

static char dir[256];

/* The variable has the value: the whole of tern_env_load fails, naming variable, value and what is allowed. */
static void bad(const char *name, const char *value, const char *allowed)
{
    struct tern_env env;
    char expected[512];
    setenv(name, value, 1);
    tern_status_t status = tern_env_load(&env);
    CHECK(status == TERN_ERR_CONFIG, "%s=%s gave %s", name, value, tern_status_name(status));
    snprintf(expected, sizeof expected, "%s=%s is not allowed; allowed: %s", name, value, allowed);
    CHECK(!strcmp(tern_last_error(), expected), "'%s' instead of '%s'", tern_last_error(), expected);
    for (int i = 0; i < tern_env_count; i++)
        CHECK(tern_env_is_default(&env, &tern_env_entries[i]), "%s=%s left %s changed", name, value,
              tern_env_entries[i].name);
    tern_env_unload(&env);
    unsetenv(name);
}

static const struct tern_env_entry *entry_of(const char *name)
{
    for (int i = 0; i < tern_env_count; i++) {
        if (!strcmp(tern_env_entries[i].name, name))
            return &tern_env_entries[i];
    }
    REQUIRE(false, "%s is not in the table", name);
    return NULL;
}

static void good(const char *name, const char *value, const char *text)
{
    struct tern_env env;
    char got[512];
    setenv(name, value, 1);
    CHECK(tern_env_load(&env) == TERN_OK, "%s=%s: %s", name, value, tern_last_error());
    tern_env_text(&env, entry_of(name), got, sizeof got);
    CHECK(!strcmp(got, text), "%s=%s reads as %s", name, value, got);
    tern_env_unload(&env);
    unsetenv(name);
}

static void values(void)
{
    static const char *const bools[] = {"2", "-1", "yes!", "TRUE", " 1", "01", "1 "};
    static const char *const ints[] = {"0", "-1", "1001", "x", "1x", "1.5", "0x10", " 7", "7 ", "99999999999999999999",
                                       "+", "-"};
    static const char *const powers[] = {"0", "3", "6", "31", "33", "255", "257", "512", "-2", "-4", "x", "8x"};
    static const char *const threads[] = {"0", "65", "-1", "one"};
    static const char *const sizes[] = {
        "-1", "1KB", "K", "1k", "1.5G", "x", "0x10", " 1", "1 ", "18446744073709551616", "99999999999T", "1P"};
    static const char *const enums[] = {"1", "abor", "aborts", "Abort", "mask|abort", "|", " mask"};

    for (size_t i = 0; i < sizeof bools / sizeof *bools; i++)
        bad("TERN_CHECK", bools[i], "0|1");
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        bad("TERN_TEST_SCALE", ints[i], "an integer from 1 to 1000");
    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++)
        bad("TERN_CHANNELS", powers[i], "a power of two from 1 to 256");
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        bad("TERN_PROXY_THREADS", threads[i], "an integer from 1 to 64");
    bad("TERN_TRANSPORT", "tcp", "auto|null|loopback|ucx|verbs");
    bad("TERN_ATOMICS", "rpc", "auto|direct|proxy");
    bad("TERN_PROXY_PENDING", "15", "an integer from 16 to 1048576");
    bad("TERN_DUMP_SIGNAL", "65", "an integer from 0 to 64");
    bad("TERN_DUMP_SIGNAL", "USR1", "an integer from 0 to 64");
    bad("TERN_STRICT_RELEASE", "2", "0|1");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        bad("TERN_HEAP_SIZE", sizes[i], "bytes, with an optional suffix K, M, G or T");
    for (size_t i = 0; i < sizeof enums / sizeof *enums; i++)
        bad("TERN_ON_DEATH", enums[i], "abort|mask");

    good("TERN_CHECK", "1", "1");
    good("TERN_CHECK", "on", "1");
    good("TERN_CHECK", "yes", "1");
    good("TERN_CHECK", "true", "1");
    good("TERN_CHECK", "off", "0");
    good("TERN_CHECK", "", "0");
    for (int power = 1; power <= 256; power *= 2) {
        char text[16];
        snprintf(text, sizeof text, "%d", power);
        good("TERN_CHANNELS", text, text);
    }
    good("TERN_PROXY_THREADS", "64", "64");
    good("TERN_TRANSPORT", "loopback", "loopback");
    good("TERN_TEST_SCALE", "1", "1");
    good("TERN_TEST_SCALE", "1000", "1000");
    good("TERN_TEST_SCALE", "+5", "5");
    good("TERN_GPU", "-1", "-1");
    good("TERN_HEAP_SIZE", "0", "0");
    good("TERN_HEAP_SIZE", "1000", "1000");
    good("TERN_HEAP_SIZE", "3K", "3K");
    good("TERN_HEAP_SIZE", "1024M", "1G");
    good("TERN_HEAP_SIZE", "2048G", "2T");
    good("TERN_HEAP_SIZE", "18446744073709551615", "18446744073709551615");
    good("TERN_ON_DEATH", "mask", "mask");
    good("TERN_LOG", "trace", "trace");
    good("TERN_LOG_FILE", "a b|c", "a b|c");
}

/* Every default is a good value, and the table describes itself. */
static void table(void)
{
    struct tern_env env;
    char allowed[512], text[512];
    CHECK(tern_env_load(&env) == TERN_OK, "%s", tern_last_error());
    for (int i = 0; i < tern_env_count; i++) {
        const struct tern_env_entry *e = &tern_env_entries[i];
        CHECK(tern_env_is_default(&env, e), "%s is not its default", e->name);
        tern_env_allowed(e, allowed, sizeof allowed);
        CHECK(*allowed && *e->meaning, "%s says nothing", e->name);
        struct tern_env again;
        setenv(e->name, e->def, 1);
        CHECK(tern_env_load(&again) == TERN_OK, "the default of %s: %s", e->name, tern_last_error());
        tern_env_unload(&again);
        unsetenv(e->name);
    }
    tern_env_unload(&env);
    for (int format = 0; format < 3; format++) {
        size_t bytes = tern_describe_env(NULL, 0, format);
        char *buf = malloc(bytes + 1);
        CHECK(tern_describe_env(buf, bytes + 1, format) == bytes && strlen(buf) == bytes, "format %d: length", format);
        for (int i = 0; i < tern_env_count; i++)
            CHECK(strstr(buf, tern_env_entries[i].name), "format %d lacks %s", format, tern_env_entries[i].name);
        CHECK(tern_describe_env(text, 20, format) == bytes && strlen(text) == 19, "format %d: cut short", format);
        free(buf);
    }
}

/* The hash depends on what must be equal, and on nothing else. */
static void hash(void)
{
    struct tern_env env;
    tern_env_load(&env);
    uint64_t standard = tern_env_hash(&env);
    tern_env_unload(&env);
    static const struct {
        const char *name, *value;
    } changes[] = {{"TERN_CHECK", "1"},        {"TERN_ON_DEATH", "mask"}, {"TERN_HEAP_SIZE", "2M"},
                   {"TERN_ATOMICS", "direct"}, {"TERN_LOG", "info"},      {"TERN_TIMEOUT_MS", "77"},
                   {"TERN_GPU", "3"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        setenv(changes[i].name, changes[i].value, 1);
        tern_env_load(&env);
        CHECK((tern_env_hash(&env) != standard) == entry_of(changes[i].name)->equal, "%s", changes[i].name);
        tern_env_unload(&env);
        unsetenv(changes[i].name);
    }
    setenv("TERN_CHECK", "no", 1); /* another spelling of the default */
    tern_env_load(&env);
    CHECK(tern_env_hash(&env) == standard, "spelling");
    tern_env_unload(&env);
    unsetenv("TERN_CHECK");
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

static char *file_text(const char *name)
{
    static char text[8192];
    FILE *file = fopen(name, "r");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = '\0';
    if (file)
        fclose(file);
    return text;
}

static void unknown_names(void)
{
    char name[300];
    snprintf(name, sizeof name, "%s/unknown.log", dir);
    CHECK(tern_log_open(TERN_LOG_WARN, name, 3) == TERN_OK, "%s", tern_last_error());
    tern_env_warn_unknown();
    CHECK(!*file_text(name), "a warning without a reason: %s", file_text(name));
    setenv("TERN_TIMOUT_MS", "1", 1);
    setenv("TERN_LOGFILE", "x", 1);
    setenv("TERNARY", "not ours", 1);
    tern_env_warn_unknown();
    tern_log_close();
    const char *text = file_text(name);
    CHECK(strstr(text, "TERN_TIMOUT_MS (nearest: TERN_TIMEOUT_MS)"), "%s", text);
    CHECK(strstr(text, "TERN_LOGFILE (nearest: TERN_LOG_FILE)"), "%s", text);
    CHECK(!strstr(text, "TERNARY"), "%s", text);
    CHECK(strchr(text, '\n') && !strchr(text, '\n')[1], "one line: %s", text);
    CHECK(strstr(text, "tern PE 3 warn: "), "prefix: %s", text);
    unsetenv("TERN_TIMOUT_MS");
    unsetenv("TERN_LOGFILE");
    unsetenv("TERNARY");
}

static void log_file(void)
{
    char pattern[300], name[400], host[65] = "", longest[3000];
    gethostname(host, sizeof host - 1);
    snprintf(pattern, sizeof pattern, "%s/log-%%p-%%h-%%x", dir);
    snprintf(name, sizeof name, "%s/log-12-%s-%%x", dir, host);
    CHECK(tern_log_open(TERN_LOG_INFO, pattern, 12) == TERN_OK, "%s", tern_last_error());
    tern_log(TERN_LOG_INFO, "hello %d", 5);
    tern_log(TERN_LOG_DEBUG, "too fine");
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    tern_log(TERN_LOG_INFO, "%s", longest);
    CHECK(tern_error(TERN_ERR_BUSY, "cause %d", 8) == TERN_ERR_BUSY && !strcmp(tern_last_error(), "cause 8"), "%s",
          tern_last_error());
    tern_log_close();
    const char *text = file_text(name);
    int lines = 0;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    CHECK(lines == 3, "%d lines: %s", lines, text);
    CHECK(strstr(text, "tern PE 12 info: hello 5\n") && strstr(text, "error: TERN_ERR_BUSY: cause 8\n"), "%s", text);

    snprintf(pattern, sizeof pattern, "%s/no/such/dir", dir);
    CHECK(tern_log_open(TERN_LOG_WARN, pattern, 0) == TERN_ERR_CONFIG, "a file that cannot be written");
    CHECK(strstr(tern_last_error(), "TERN_LOG_FILE=") && strstr(tern_last_error(), "No such file"), "%s",
          tern_last_error());
    CHECK(tern_log_open(TERN_LOG_WARN, dir, 0) == TERN_ERR_CONFIG, "a directory");
    memset(longest, '/', sizeof longest - 1);
    tern_log_close();
}

/* tern_init reports all of this as its own failure, and can be called again. */
static void by_init(void)
{
    char name[300];
    snprintf(name, sizeof name, "%s/no/such", dir);
    setenv("TERN_BOOTSTRAP", "singleton", 1);
    setenv("TERN_CHECK", "maybe", 1);
    CHECK(tern_init() == TERN_ERR_CONFIG && strstr(tern_last_error(), "TERN_CHECK=maybe"), "%s", tern_last_error());
    unsetenv("TERN_CHECK");
    setenv("TERN_BOOTSTRAP", "smoke", 1);
    CHECK(tern_init() == TERN_ERR_CONFIG && strstr(tern_last_error(), "auto|pmix|singleton"), "%s", tern_last_error());
    setenv("TERN_BOOTSTRAP", "singleton", 1);
    setenv("TERN_LOG_FILE", name, 1);
    CHECK(tern_init() == TERN_ERR_CONFIG && strstr(tern_last_error(), "TERN_LOG_FILE="), "%s", tern_last_error());
    unsetenv("TERN_LOG_FILE");
    CHECK(!tern_initialized(), "nothing runs");
}

static void names(void)
{
    CHECK(!strcmp(tern_status_name(TERN_ERR_TIMEOUT), "TERN_ERR_TIMEOUT"), "name");
    CHECK(!strcmp(tern_status_text(TERN_ERR_TIMEOUT), "a deadline passed"), "text");
    CHECK(!strcmp(tern_status_name((tern_status_t)999), "unknown status") && tern_status_text((tern_status_t)999),
          "unknown");
    CHECK(tern_version() == TERN_VERSION_MAJOR * 10000 + TERN_VERSION_MINOR * 100 + TERN_VERSION_PATCH, "version");
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    alarm(60);
    snprintf(dir, sizeof dir, "%s/tern-test-env-%d", tmp ? tmp : "/tmp", (int)getpid());
    REQUIRE(!mkdir(dir, 0700), "mkdir");
    for (int i = 0; i < tern_env_count; i++)
        unsetenv(tern_env_entries[i].name);
    names();
    table();
    unknown_names();
    log_file();
    tern_log_open(TERN_LOG_NONE, NULL, -1);
    values();
    hash();
    by_init();
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    CHECK(!system(command), "cannot remove %s", dir);
    return test_end("env");
}
