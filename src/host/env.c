/* env.c - parser and hash of the TERN_* variables, generated from the table in env.h. */
#include "host/env.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/log.h"

extern char **environ;

const struct tern_env_entry tern_env_entries[] = {
#define ENV_ENTRY(name, field, kind, def, low, high, choices, equal, meaning)                                          \
    {#name, def, choices, meaning, TERN_ENV_##kind, low, high, equal, offsetof(struct tern_env, field)},
    TERN_ENV_TABLE(ENV_ENTRY)
#undef ENV_ENTRY
};
const int tern_env_count = (int)(sizeof tern_env_entries / sizeof tern_env_entries[0]);

/* Position of `text` among names separated by '|'; -1 if it is none of them. */
static int choice_find(const char *choices, const char *text)
{
    size_t length = strlen(text);
    int position = 0;
    for (const char *p = choices;; position++) {
        size_t n = strcspn(p, "|");
        if (n == length && !memcmp(p, text, n))
            return position;
        if (!p[n])
            return -1;
        p += n + 1;
    }
}

static void choice_name(const char *choices, int position, char *buf, size_t bytes)
{
    const char *p = choices;
    while (position-- > 0)
        p += strcspn(p, "|") + 1;
    snprintf(buf, bytes, "%.*s", (int)strcspn(p, "|"), p);
}

static bool parse_int(const char *text, int64_t low, int64_t high, int64_t *out)
{
    char *end;
    if (!strchr("-+0123456789", *text))
        return false;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high)
        return false;
    *out = value;
    return true;
}

/* Decimal bytes with an optional suffix K, M, G or T (powers of 1024). */
static bool parse_size(const char *text, uint64_t *out)
{
    static const char suffixes[] = "KMGT";
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno)
        return false;
    if (*end) {
        const char *suffix = strchr(suffixes, *end);
        if (!suffix || end[1])
            return false;
        unsigned shift = 10 * (unsigned)(suffix - suffixes + 1);
        if (value > UINT64_MAX >> shift)
            return false;
        value <<= shift;
    }
    *out = value;
    return true;
}

static bool entry_parse(struct tern_env *env, const struct tern_env_entry *entry, const char *text)
{
    char *field = (char *)env + entry->offset;
    int64_t integer;
    uint64_t size;
    int position;

    switch (entry->kind) {
    case TERN_ENV_bool:
        position = choice_find("0|1|no|yes|off|on|false|true", text);
        if (position < 0)
            return false;
        *(int *)field = position % 2;
        return true;
    case TERN_ENV_int:
    case TERN_ENV_power:
        if (!parse_int(text, entry->low, entry->high, &integer))
            return false;
        if (entry->kind == TERN_ENV_power && (integer & (integer - 1)))
            return false;
        *(int64_t *)field = integer;
        return true;
    case TERN_ENV_size:
        if (!parse_size(text, &size))
            return false;
        *(uint64_t *)field = size;
        return true;
    case TERN_ENV_enum:
        position = choice_find(entry->choices, text);
        if (position < 0)
            return false;
        *(int *)field = position;
        return true;
    case TERN_ENV_string:
        *(char **)field = strdup(text);
        return *(char **)field != NULL;
    }
    return false;
}

void tern_env_allowed(const struct tern_env_entry *entry, char *buf, size_t bytes)
{
    switch (entry->kind) {
    case TERN_ENV_bool:
        snprintf(buf, bytes, "0|1");
        break;
    case TERN_ENV_int:
        snprintf(buf, bytes, "an integer from %" PRId64 " to %" PRId64, entry->low, entry->high);
        break;
    case TERN_ENV_power:
        snprintf(buf, bytes, "a power of two from %" PRId64 " to %" PRId64, entry->low, entry->high);
        break;
    case TERN_ENV_size:
        snprintf(buf, bytes, "bytes, with an optional suffix K, M, G or T");
        break;
    case TERN_ENV_enum:
        snprintf(buf, bytes, "%s", entry->choices);
        break;
    case TERN_ENV_string:
        snprintf(buf, bytes, "text");
        break;
    }
}

void tern_env_text(const struct tern_env *env, const struct tern_env_entry *entry, char *buf, size_t bytes)
{
    static const char suffixes[] = "KMGT";
    const char *field = (const char *)env + entry->offset;

    switch (entry->kind) {
    case TERN_ENV_bool:
        snprintf(buf, bytes, "%d", *(const int *)field);
        break;
    case TERN_ENV_int:
    case TERN_ENV_power:
        snprintf(buf, bytes, "%" PRId64, *(const int64_t *)field);
        break;
    case TERN_ENV_size: {
        uint64_t value = *(const uint64_t *)field;
        int power = 0;
        while (value && value % 1024 == 0 && power < 4) {
            value /= 1024;
            power++;
        }
        snprintf(buf, bytes, "%" PRIu64 "%.*s", value, power ? 1 : 0, power ? suffixes + power - 1 : "");
        break;
    }
    case TERN_ENV_enum:
        choice_name(entry->choices, *(const int *)field, buf, bytes);
        break;
    case TERN_ENV_string:
        snprintf(buf, bytes, "%s", *(char *const *)field);
        break;
    }
}

bool tern_env_is_default(const struct tern_env *env, const struct tern_env_entry *entry)
{
    char text[4096];
    tern_env_text(env, entry, text, sizeof text);
    return !strcmp(text, entry->def);
}

/* Edits (insert, delete, replace) that turn a into b. */
static int edit_distance(const char *a, const char *b)
{
    enum { MOST = 64 };
    int row[MOST + 1], length = (int)strlen(b);
    if (length > MOST)
        return MOST;
    for (int j = 0; j <= length; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            int best = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            row[j] = replaced < best ? replaced : best;
        }
    }
    return row[length];
}

static const char *nearest_name(const char *name)
{
    const char *nearest = tern_env_entries[0].name;
    int best = 1 << 30;
    for (int i = 0; i < tern_env_count; i++) {
        int distance = edit_distance(name, tern_env_entries[i].name);
        if (distance < best) {
            best = distance;
            nearest = tern_env_entries[i].name;
        }
    }
    return nearest;
}

static bool name_known(const char *name)
{
    for (int i = 0; i < tern_env_count; i++) {
        if (!strcmp(name, tern_env_entries[i].name))
            return true;
    }
    return false;
}

void tern_env_warn_unknown(void)
{
    char line[512];
    size_t used = 0;
    for (char **p = environ; *p && used < sizeof line; p++) {
        char name[64];
        size_t n = strcspn(*p, "=");
        if (strncmp(*p, "TERN_", 5) || n >= sizeof name)
            continue;
        memcpy(name, *p, n);
        name[n] = '\0';
        if (!name_known(name))
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%s (nearest: %s)", used ? ", " : "", name,
                                     nearest_name(name));
    }
    if (used)
        tern_log(TERN_LOG_WARN, "unknown variables have no effect: %s", line);
}

tern_status_t tern_env_load(struct tern_env *env)
{
    tern_status_t status = TERN_OK;
    memset(env, 0, sizeof *env);
    for (int i = 0; i < tern_env_count; i++) {
        const struct tern_env_entry *entry = &tern_env_entries[i];
        const char *text = getenv(entry->name);
        if (text && *text && entry_parse(env, entry, text))
            continue;
        entry_parse(env, entry, entry->def);
        if (text && *text && status == TERN_OK) {
            char allowed[512];
            tern_env_allowed(entry, allowed, sizeof allowed);
            status = tern_error(TERN_ERR_CONFIG, "%s=%s is not allowed; allowed: %s", entry->name, text, allowed);
        }
    }
    return status;
}

void tern_env_unload(struct tern_env *env)
{
    for (int i = 0; i < tern_env_count; i++) {
        if (tern_env_entries[i].kind == TERN_ENV_string) {
            char **field = (char **)((char *)env + tern_env_entries[i].offset);
            free(*field);
            *field = NULL;
        }
    }
}

/* FNV-1a over names and values of what must be equal. */
uint64_t tern_env_hash(const struct tern_env *env)
{
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < tern_env_count; i++) {
        char text[256], line[320];
        if (!tern_env_entries[i].equal)
            continue;
        tern_env_text(env, &tern_env_entries[i], text, sizeof text);
        int n = snprintf(line, sizeof line, "%s=%s\n", tern_env_entries[i].name, text);
        for (int j = 0; j < n; j++)
            hash = (hash ^ (unsigned char)line[j]) * 1099511628211u;
    }
    return hash;
}
