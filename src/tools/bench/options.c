/* options.c - the command line of tern-bench: names, parsing, what fits together, and the help text. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define MAX_BYTES ((uint64_t)1 << 36)

#define BENCH_NAME(id, name, who, min, max, text) name,
const char *const bench_test_name[BENCH_TEST_COUNT] = {BENCH_TESTS(BENCH_NAME)};
#undef BENCH_NAME
#define BENCH_TEXT(id, name, who, min, max, text) text,
const char *const bench_test_text[BENCH_TEST_COUNT] = {BENCH_TESTS(BENCH_TEXT)};
#undef BENCH_TEXT
#define BENCH_NAME(id, name) name,
const char *const bench_op_name[BENCH_OP_COUNT] = {BENCH_OPS(BENCH_NAME)};
#undef BENCH_NAME
#define BENCH_NAME(name, T) #name,
const char *const bench_type_name[BENCH_TYPE_COUNT] = {TERN_SCALAR_TYPES(BENCH_NAME)};
#undef BENCH_NAME
const char *const bench_scope_name[3] = {"thread", "warp", "block"};

static const char usage_head[] =
    "NAME\n"
    "    tern-bench - measure Tern's operations beside what the device allows\n"
    "\n"
    "SYNOPSIS\n"
    "    mpirun -n 2 tern-bench TEST [OPTIONS]       srun --mpi=pmix -n 2 tern-bench TEST [OPTIONS]\n"
    "\n"
    "DESCRIPTION\n"
    "    Each sample is a kernel that repeats an operation and reads the device's clock before and after. Beside it, in turn,\n"
    "    runs the floor: a raw loop that moves the same data and synchronises in the same way, without Tern. The ratio is\n"
    "    time over the floor's time. Tests of two PEs run between PE 0 and PE 1; with one PE, PE 0 is its own peer.\n"
    "    On the CPU device all figures are those of CPUs; where PEs share a GPU they are those of its memory, not of a link.\n"
    "\n"
    "TESTS\n";
static const char usage_tail[] =
    "\n"
    "OPTIONS\n"
    "    -b, --min BYTES      smallest size; K, M, G may follow (default: by test)\n"
    "    -e, --max BYTES      largest size\n"
    "    -f, --factor F       each size is the one before it times F, more than 1 (default 4)\n"
    "    -n, --iters N        operations of a sample (default: by device and size)\n"
    "    -w, --warmup N       operations before the clock starts (default: a tenth of -n)\n"
    "        --samples N      samples, of which minimum, median and 99th percentile are printed (default 40, CPU device 10)\n"
    "    -c, --ctas N         blocks (default 1)\n"
    "    -t, --threads N      threads of a block (default: thread 1, warp 32, block 1024; CPU device 64)\n"
    "    -s, --scope SCOPE    who makes a call together: thread, warp or block (default thread; barrier, sync: block).\n"
    "                         Sizes are divided among all threads, warps or blocks; in ping-pongs each block has its own\n"
    "                         message, sent by its first thread or warp, or by the block\n"
    "    -d, --type TYPE      p, g, atomic: element type (default uint64); atomics have those of 4 and 8 bytes\n"
    "    -o, --op OP          atomic: operator (default fetch_add)\n"
    "        --stage BYTES    put, put-quiet, get, put-signal-pingpong: shared memory of a block lent to Tern, divided among\n"
    "                         the calling threads or warps (default 0: none)\n"
    "        --released       sync: with TERN_RELEASED, arrival only; proxy-issue: what is put has been released before\n"
    "        --check          verify the data too; wrong bytes or words are counted, and any of them fails the run\n"
    "        --json           one JSON object for each size instead of the table\n"
    "        --plot FILE      draw time over size into FILE (.svg, .png or .pdf) with gnuplot\n"
    "        --help           this text\n"
    "\n"
    "OUTPUT\n"
    "    bytes, time of an operation in microseconds (median, 99th percentile of the samples), GB/s (10^9 bytes a second;\n"
    "    ping-pongs: both ways), the floor's median, time over floor. JSON has besides: test, device, path, pes, scope, ctas,\n"
    "    threads, us_min, wrong (null without --check), version, date, and type, op, stage, released, iters, samples, machine,\n"
    "    sharers, command.\n"
    "\n"
    "EXIT STATUS\n"
    "    0  measured     1  the run failed, or data was wrong     2  wrong usage\n"
    "\n"
    "EXAMPLES\n"
    "    mpirun -n 2 tern-bench put-quiet -s block -b 4K -e 32K -f 8 --stage 32K\n"
    "    mpirun -n 2 tern-bench put -s block -c 64 -b 64M -e 64M\n"
    "    mpirun -n 4 tern-bench barrier -t 512 -b 4K --json >> results.jsonl\n";

static void print_help(void)
{
    fputs(usage_head, stdout);
    for (int t = 0; t < BENCH_TEST_COUNT; t++)
        printf("    %-20s %s\n", bench_test_name[t], bench_test_text[t]);
    fputs("\n  operators of atomic:", stdout);
    for (int i = 0; i < BENCH_OP_COUNT; i++)
        printf(" %s", bench_op_name[i]);
    fputs("\n  types:", stdout);
    for (int i = 0; i < BENCH_TYPE_COUNT; i++)
        printf(" %s", bench_type_name[i]);
    putchar('\n');
    fputs(usage_tail, stdout);
}

/* ---- values ------------------------------------------------------------------------------------------------------------------ */

static bool parse_size(const char *name, const char *text, uint64_t high, uint64_t *value)
{
    char *end;
    int shift = 0;

    errno = 0;
    *value = strtoull(text, &end, 10);
    bool digits = end != text && text[0] >= '0' && text[0] <= '9';
    if (*end == 'K' || *end == 'M' || *end == 'G')
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30, end++;
    if (errno || !digits || *end || *value > high >> shift) {
        fprintf(stderr, "tern-bench: %s '%s': a size from 0 to %llu is needed, such as 64, 4K, 16M or 1G\n", name, text,
                (unsigned long long)high);
        return false;
    }
    *value <<= shift;
    return true;
}

static bool parse_long(const char *name, const char *text, long low, long high, long *value)
{
    char *end;

    errno = 0;
    *value = strtol(text, &end, 10);
    if (errno || end == text || *end || *value < low || *value > high) {
        fprintf(stderr, "tern-bench: %s '%s': a number from %ld to %ld is needed\n", name, text, low, high);
        return false;
    }
    return true;
}

static bool parse_int(const char *name, const char *text, int high, int *value)
{
    long number;
    if (!parse_long(name, text, 1, high, &number))
        return false;
    *value = (int)number;
    return true;
}

static bool parse_name(const char *what, const char *text, const char *const *names, int count, int *value)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(text, names[i]) == 0) {
            *value = i;
            return true;
        }
    }
    fprintf(stderr, "tern-bench: %s '%s' is unknown; there are:", what, text);
    for (int i = 0; i < count; i++)
        fprintf(stderr, " %s", names[i]);
    fputc('\n', stderr);
    return false;
}

static bool parse_factor(const char *text, double *value)
{
    char *end;

    errno = 0;
    *value = strtod(text, &end);
    if (errno || end == text || *end || !(*value > 1.0) || *value > 1e6) {
        fprintf(stderr, "tern-bench: --factor '%s': a number above 1 is needed\n", text);
        return false;
    }
    return true;
}

/* What was given, so that what does not fit the test can be refused. */
struct given {
    bool sizes_min, sizes_max, type, op, scope, ctas, warmup;
};

static bool parse_option(struct bench_options *o, struct given *given, int c)
{
    uint64_t size;

    switch (c) {
    case 'b':
        given->sizes_min = true;
        return parse_size("--min", optarg, MAX_BYTES, &o->min);
    case 'e':
        given->sizes_max = true;
        return parse_size("--max", optarg, MAX_BYTES, &o->max);
    case 'f':
        return parse_factor(optarg, &o->factor);
    case 'n':
        return parse_long("--iters", optarg, 1, 100000000, &o->rounds);
    case 'w':
        given->warmup = true;
        return parse_long("--warmup", optarg, 0, 100000000, &o->warmup);
    case 'S':
        return parse_long("--samples", optarg, 1, 100000, &o->samples);
    case 'c':
        given->ctas = true;
        return parse_int("--ctas", optarg, 65535, &o->blocks);
    case 't':
        return parse_int("--threads", optarg, 1024, &o->threads);
    case 's':
        given->scope = true;
        return parse_name("scope", optarg, bench_scope_name, 3, &o->scope);
    case 'd':
        given->type = true;
        return parse_name("type", optarg, bench_type_name, BENCH_TYPE_COUNT, &o->type);
    case 'o':
        given->op = true;
        return parse_name("operator", optarg, bench_op_name, BENCH_OP_COUNT, &o->op);
    case 'G':
        if (!parse_size("--stage", optarg, 1 << 20, &size))
            return false;
        o->stage = (uint32_t)size;
        return true;
    case 'R':
        return o->released = true;
    case 'C':
        return o->check = true;
    case 'J':
        return o->json = true;
    case 'P':
        o->plot = optarg;
        return true;
    default:
        fputs("tern-bench: --help lists the options\n", stderr);
        return false;
    }
}

/* ---- what fits together ----------------------------------------------------------------------------------------------------------- */

static bool refuse(const struct bench_options *o, const char *why)
{
    fprintf(stderr, "tern-bench %s: %s\n", bench_test_name[o->test], why);
    return false;
}

static bool has_sizes(int test)
{
    return test == BENCH_PUT || test == BENCH_PUT_QUIET || test == BENCH_GET || test == BENCH_PUT_SIGNAL;
}

static void default_sizes(struct bench_options *o, const struct given *given)
{
#define BENCH_MIN(id, name, who, min, max, text) min,
    static const uint64_t min[] = {BENCH_TESTS(BENCH_MIN)};
#define BENCH_MAX(id, name, who, min, max, text) max,
    static const uint64_t max[] = {BENCH_TESTS(BENCH_MAX)};

    if (!given->sizes_min)
        o->min = given->sizes_max && o->max < min[o->test] ? o->max : min[o->test];
    if (!given->sizes_max)
        o->max = given->sizes_min && o->min > max[o->test] ? o->min : max[o->test];
}

static bool check_sizes(const struct bench_options *o, const struct given *given)
{
    if (!has_sizes(o->test) && o->test != BENCH_BARRIER && (given->sizes_min || given->sizes_max))
        return refuse(o, "has no sizes (-b, -e)");
    if (o->min > o->max)
        return refuse(o, "--min is more than --max");
    if (has_sizes(o->test) && o->min == 0)
        return refuse(o, "--min 0: sizes start at 1");
    if (o->test == BENCH_BARRIER && (o->min % 8 || o->max % 8))
        return refuse(o, "puts before the barrier are of 8 bytes: sizes must be multiples of 8");
    return true;
}

static bool check_shape(struct bench_options *o, const struct given *given)
{
    bool meets = o->test == BENCH_BARRIER || o->test == BENCH_SYNC;
    bool scoped = has_sizes(o->test) || meets;

    if (given->scope && !scoped)
        return refuse(o, "is made by threads: it has no scope (-s)");
    if (meets && given->ctas && o->blocks != 1)
        return refuse(o, "one block a PE meets the others (-c 1)");
    if (!given->scope)
        o->scope = meets ? BENCH_BLOCK : BENCH_THREAD;
    if (!o->threads) {
        bool cpu = strcmp(tern_device_name(), "cpu") == 0;
        o->threads = o->scope == BENCH_BLOCK ? (cpu ? 64 : 1024) : o->scope == BENCH_WARP ? 32 : 1;
    }
    if (o->scope == BENCH_WARP && o->threads % 32)
        return refuse(o, "--scope warp needs --threads in multiples of 32");
    return true;
}

static bool check_stage(const struct bench_options *o)
{
    uint32_t units = o->scope == BENCH_BLOCK ? 1 : (uint32_t)o->threads / (o->scope == BENCH_WARP ? 32 : 1);

    if (!o->stage)
        return true;
    if (!has_sizes(o->test))
        return refuse(o, "copies nothing: --stage is of no use");
    if (o->stage / units < 1024)
        return refuse(o, "--stage is too small: each thread, warp or block that makes a call needs 1K of it");
    return true;
}

static bool check_types(const struct bench_options *o, const struct given *given)
{
    int op = o->op;
    bool real = o->type == BENCH_TYPE_float || o->type == BENCH_TYPE_double;

    if (given->op && o->test != BENCH_ATOMIC)
        return refuse(o, "has no operator (-o)");
    if (given->type && o->test != BENCH_ATOMIC && o->test != BENCH_P && o->test != BENCH_G)
        return refuse(o, "has no type (-d)");
    if (o->released && o->test != BENCH_SYNC && o->test != BENCH_ISSUE)
        return refuse(o, "--released belongs to sync and proxy-issue");
    if (o->test != BENCH_ATOMIC)
        return true;
    if (o->type < BENCH_TYPE_int32)
        return refuse(o, "there are atomics on int32, int64, uint32, uint64, float and double");
    if (real && op != BENCH_OP_ADD && op != BENCH_OP_FETCH_ADD && op != BENCH_OP_SWAP && op != BENCH_OP_SET &&
        op != BENCH_OP_FETCH)
        return refuse(o, "float and double have add, fetch_add, swap, set and fetch");
    return true;
}

static bool check_options(struct bench_options *o, const struct given *given)
{
    default_sizes(o, given);
    if (!check_sizes(o, given) || !check_shape(o, given) || !check_stage(o) || !check_types(o, given))
        return false;
    if (!given->warmup)
        o->warmup = -1;
    if (!o->samples)
        o->samples = strcmp(tern_device_name(), "cpu") == 0 ? 10 : 40;
    return true;
}

int bench_options_parse(struct bench_options *o, int argc, char **argv)
{
    static const struct option names[] = {
        {"min", required_argument, NULL, 'b'},     {"max", required_argument, NULL, 'e'},
        {"factor", required_argument, NULL, 'f'},  {"iters", required_argument, NULL, 'n'},
        {"warmup", required_argument, NULL, 'w'},  {"samples", required_argument, NULL, 'S'},
        {"ctas", required_argument, NULL, 'c'},    {"threads", required_argument, NULL, 't'},
        {"scope", required_argument, NULL, 's'},   {"type", required_argument, NULL, 'd'},
        {"op", required_argument, NULL, 'o'},      {"stage", required_argument, NULL, 'G'},
        {"released", no_argument, NULL, 'R'},      {"check", no_argument, NULL, 'C'},
        {"json", no_argument, NULL, 'J'},          {"plot", required_argument, NULL, 'P'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    struct given given = {0};
    int c;

    *o = (struct bench_options){.factor = 4, .blocks = 1, .type = BENCH_TYPE_uint64, .op = BENCH_OP_FETCH_ADD};
    while ((c = getopt_long(argc, argv, "b:e:f:n:w:c:t:s:d:o:h", names, NULL)) != -1) {
        if (c == 'h') {
            print_help();
            return 0;
        }
        if (!parse_option(o, &given, c))
            return 2;
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "tern-bench: %s; --help tells more\n",
                optind == argc ? "the name of a test is needed" : "one test at a time");
        return 2;
    }
    if (!parse_name("test", argv[optind], bench_test_name, BENCH_TEST_COUNT, &o->test))
        return 2;
    return check_options(o, &given) ? -1 : 2;
}
