/*
 * loopback_faults.c - TERN_LOOPBACK_FAULTS: its parser, and the queue in which operations wait for their time. Random
 * numbers come from the seed, the PE and the thread, so that a run can be repeated as far as the kernels repeat theirs.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proxy/loopback.h"

/* ---- parser
 * ---------------------------------------------------------------------------------------------------------------- */

/* A decimal number up to `most`; *text moves behind it. */
static bool parse_number(const char **text, uint64_t most, uint64_t *out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    *out = strtoull(*text, &end, 10);
    *text = end;
    return *out <= most;
}

static bool parse_char(const char **text, char c)
{
    return *(*text)++ == c;
}

static bool parse_delay(const char *value, struct loopback_faults *f)
{
    uint64_t low, high;
    bool good = parse_number(&value, 1000000, &low) && parse_char(&value, '-') &&
                parse_number(&value, 1000000, &high) && low <= high && !strcmp(value, "us");
    f->delay_low_us = good ? (uint32_t)low : 0;
    f->delay_high_us = good ? (uint32_t)high : 0;
    return good;
}

static bool parse_share(const char *value, double *out)
{
    char *end;
    if (*value < '0' || *value > '1')
        return false;
    *out = strtod(value, &end);
    return !*end && *out >= 0 && *out <= 1;
}

static bool parse_kill(const char *value, struct loopback_faults *f)
{
    uint64_t pe = 0;
    bool good = parse_number(&value, 1 << 20, &pe) && parse_char(&value, '@') &&
                parse_number(&value, UINT64_MAX, &f->kill_at) && !*value && f->kill_at;
    f->kill_pe = (int)pe;
    return good;
}

static bool parse_whole(const char *value, uint64_t least, uint64_t most, uint64_t *out)
{
    return parse_number(&value, most, out) && !*value && *out >= least;
}

static bool parse_item(const char *name, const char *value, struct loopback_faults *f)
{
    uint64_t number;

    if (!strcmp(name, "delay"))
        return parse_delay(value, f);
    if (!strcmp(name, "reorder"))
        return parse_share(value, &f->reorder);
    if (!strcmp(name, "kill"))
        return parse_kill(value, f);
    if (!strcmp(name, "fail"))
        return parse_whole(value, 1, UINT64_MAX, &f->fail_at);
    if (!strcmp(name, "seed"))
        return parse_whole(value, 0, UINT64_MAX, &f->seed);
    if (!strcmp(name, "credits") && parse_whole(value, 1, 1 << 20, &number)) {
        f->credits = (uint32_t)number;
        return true;
    }
    if (!strcmp(name, "pe") && parse_whole(value, 0, 1 << 20, &number)) {
        f->fail_pe = (int)number;
        return true;
    }
    return false;
}

bool tern_loopback_parse(const char *text, struct loopback_faults *f, char *what, size_t bytes)
{
    *f = (struct loopback_faults){.fail_pe = -1, .kill_pe = -1};
    while (*text) {
        char item[64], *value;
        size_t length = strcspn(text, ",");

        snprintf(what, bytes, "%.*s", (int)length, text);
        if (length >= sizeof item)
            return false;
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        value = strchr(item, '=');
        if (!value)
            return false;
        *value++ = '\0';
        if (!parse_item(item, value, f))
            return false;
        f->any = true;
        text += length;
        if (*text && !*++text)
            return false; /* ends with a comma */
    }
    return true;
}

/* ---- queue
 * ------------------------------------------------------------------------------------------------------------------ */

static uint64_t clock_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t random_next(struct loopback_thread *lt)
{
    uint64_t x = lt->random += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

tern_status_t tern_loopback_faults_open(struct tern_proxy_thread *t, struct loopback_thread *lt, uint64_t seed)
{
    size_t dests = (size_t)t->dest_count + 1;

    lt->random = seed * 1000003u + (uint64_t)t->px->rt->pe * 1009u + (uint64_t)t->index;
    lt->late = calloc(t->px->pool_ops, sizeof *lt->late);
    lt->counts = calloc(dests * (size_t)t->px->channels, sizeof *lt->counts);
    lt->due_last = calloc(dests, sizeof *lt->due_last);
    lt->under_way = calloc(dests, sizeof *lt->under_way);
    if (!lt->late || !lt->counts || !lt->due_last || !lt->under_way)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the faults of loopback; unset TERN_LOOPBACK_FAULTS");
    return TERN_OK;
}

void tern_loopback_faults_close(struct loopback_thread *lt)
{
    free(lt->late);
    free(lt->counts);
    free(lt->due_last);
    free(lt->under_way);
}

static bool earlier(const struct loopback_late *a, const struct loopback_late *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void late_swap(struct loopback_late *a, struct loopback_late *b)
{
    struct loopback_late x = *a;
    *a = *b;
    *b = x;
}

static void late_sift_up(struct loopback_late *heap, uint32_t i)
{
    for (; i && earlier(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2)
        late_swap(&heap[i], &heap[(i - 1) / 2]);
}

static void late_sift_down(struct loopback_late *heap, uint32_t count, uint32_t i)
{
    for (uint32_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && earlier(&heap[child + 1], &heap[child]))
            child++;
        if (!earlier(&heap[child], &heap[i]))
            return;
        late_swap(&heap[i], &heap[child]);
    }
}

static struct tern_op *late_remove(struct loopback_thread *lt, uint32_t i)
{
    struct tern_op *op = lt->late[i].op;
    lt->late[i] = lt->late[--lt->late_count];
    if (i < lt->late_count) {
        late_sift_down(lt->late, lt->late_count, i);
        late_sift_up(lt->late, i);
    }
    return op;
}

static int dest_index(const struct tern_proxy_thread *t, const struct tern_op *op)
{
    return (int)(op->dest - t->dests);
}

/* When an operation is to be executed: none overtakes another, but for those that the dice choose. */
static uint64_t due(struct loopback_thread *lt, const struct loopback_faults *f, int dest)
{
    uint64_t now = clock_ns(), span = (uint64_t)f->delay_high_us - f->delay_low_us + 1;
    uint64_t at = now + (f->delay_low_us + random_next(lt) % span) * 1000u;
    bool stray = (double)(random_next(lt) >> 11) * 0x1p-53 < f->reorder;

    if (stray)
        return at + (f->delay_high_us ? 0 : random_next(lt) % 100000u);
    if (at < lt->due_last[dest])
        at = lt->due_last[dest];
    return lt->due_last[dest] = at;
}

enum tern_post tern_loopback_hold(struct tern_proxy_thread *t, const struct loopback_faults *f, struct tern_op *op)
{
    struct loopback_thread *lt = t->net;
    int dest = dest_index(t, op);
    uint64_t *count = &lt->counts[(size_t)dest * (size_t)t->px->channels + op->ring];

    if (f->credits && lt->under_way[dest] >= f->credits)
        return TERN_POST_BUSY;
    if (++lt->posts == f->kill_at && f->kill_pe == t->px->rt->pe)
        kill(getpid(), SIGKILL);
    ++*count;
    if (f->fail_at && *count == f->fail_at && (f->fail_pe < 0 || f->fail_pe == op->dest->pe)) {
        tern_error(TERN_ERR_TRANSPORT, "TERN_LOOPBACK_FAULTS says that operation %llu of a ring and a PE fails",
                   (unsigned long long)f->fail_at);
        return TERN_POST_FAILED;
    }
    lt->under_way[dest]++;
    lt->late[lt->late_count] = (struct loopback_late){due(lt, f, dest), lt->order++, op};
    late_sift_up(lt->late, lt->late_count++);
    return TERN_POSTED;
}

struct tern_op *tern_loopback_next(struct loopback_thread *lt)
{
    if (!lt->late_count || lt->late[0].due_ns > clock_ns())
        return NULL;
    struct tern_op *op = late_remove(lt, 0);
    return op;
}

struct tern_op *tern_loopback_drop(struct loopback_thread *lt, const struct tern_dest *dest)
{
    for (uint32_t i = 0; i < lt->late_count; i++) {
        if (lt->late[i].op->dest == dest)
            return late_remove(lt, i);
    }
    return NULL;
}
