/*
 * bench.h - what the parts of tern-bench share:
 *   main.c     samples, statistics, checks       tests.cu   kernels that use Tern's device API
 *   options.c  command line                      floors.cu  raw loops of the same shape, which bound what is possible
 *   output.c   table, JSON, plot                 check.cu   filling and verifying of memory, and tests made only to verify
 *                                                proxy.cu   tests and raw loops of the way through the proxy
 *
 * A test runs `rounds` operations inside one kernel, between two readings of the device's clock; that is one sample. Test
 * and floor take turns, sample by sample, so that both see the same machine.
 */
#ifndef TERN_BENCH_H
#define TERN_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tern/tern.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(enumerator, name, PEs that run the kernel, smallest and largest default size, what it does) */
enum bench_who { BENCH_FIRST, BENCH_PAIR, BENCH_ALL };
/* clang-format off */
#define BENCH_TESTS(X) \
    X(PUT,        "put",                 BENCH_FIRST, 8, 4194304, "puts one after the other, one quiet at the end") \
    X(PUT_QUIET,  "put-quiet",           BENCH_FIRST, 8, 4194304, "a put and a quiet, each round") \
    X(GET,        "get",                 BENCH_FIRST, 8, 4194304, "gets one after the other") \
    X(P,          "p",                   BENCH_FIRST, 0, 0,       "a p of each thread and a quiet, each round") \
    X(G,          "g",                   BENCH_FIRST, 0, 0,       "g of each thread, each waits for the one before it") \
    X(SIGNAL,     "signal-pingpong",     BENCH_PAIR,  0, 0,       "signal_op there and back: time of the round trip") \
    X(PUT_SIGNAL, "put-signal-pingpong", BENCH_PAIR,  8, 65536,   "put_signal there and back: time of the round trip") \
    X(ATOMIC,     "atomic",              BENCH_FIRST, 0, 0,       "atomics of each thread on its own word") \
    X(BARRIER,    "barrier",             BENCH_ALL,   0, 0,       "barrier_all of all PEs, behind puts of the size to each PE") \
    X(SYNC,       "sync",                BENCH_ALL,   0, 0,       "sync_all of all PEs") \
    X(ISSUE,      "proxy-issue",         BENCH_FIRST, 0, 0,       "handing a put of 16 bytes to the proxy, in bursts of 32") \
    X(NOP,        "proxy-nop",           BENCH_FIRST, 0, 0,       "an entry that does nothing, and the proxy's answer") \
    X(RATE,       "proxy-rate",          BENCH_FIRST, 0, 0,       "a p of 8 bytes of each thread, one quiet at the end")
/* clang-format on */
enum bench_test {
#define BENCH_ENUM(id, name, who, min, max, text) BENCH_##id,
    BENCH_TESTS(BENCH_ENUM)
#undef BENCH_ENUM
    BENCH_TEST_COUNT
};

/* The last ones go through the proxy, whatever the peer. */
#define BENCH_PROXIED(test) ((test) >= BENCH_ISSUE)

/* X(enumerator, name); the ones that return the old value first, then those that do not */
#define BENCH_OPS(X)                                                                                                   \
    X(FETCH_ADD, "fetch_add") X(FETCH_INC, "fetch_inc") X(FETCH_AND, "fetch_and") X(FETCH_OR, "fetch_or")              \
    X(FETCH_XOR, "fetch_xor") X(FETCH, "fetch") X(SWAP, "swap") X(COMPARE_SWAP, "compare_swap") X(ADD, "add")          \
    X(INC, "inc") X(AND, "and") X(OR, "or") X(XOR, "xor") X(SET, "set")
enum bench_op {
#define BENCH_ENUM(id, name) BENCH_OP_##id,
    BENCH_OPS(BENCH_ENUM)
#undef BENCH_ENUM
    BENCH_OP_COUNT
};
#define BENCH_OP_FETCHES(op) ((op) < BENCH_OP_ADD)

enum bench_type {
#define BENCH_ENUM(name, T) BENCH_TYPE_##name,
    TERN_SCALAR_TYPES(BENCH_ENUM)
#undef BENCH_ENUM
    BENCH_TYPE_COUNT
};

enum bench_scope { BENCH_THREAD, BENCH_WARP, BENCH_BLOCK };

/* Raw loops: one for each test, and for copies by bulk-async operations besides. */
enum bench_floor { BENCH_FLOOR_RAW, BENCH_FLOOR_BULK, BENCH_FLOOR_COUNT };

/* What a block of a kernel found. */
struct bench_out {
    uint64_t begin, end; /* ns */
    uint64_t wrong;
    int32_t status;      /* tern_status_t */
    int32_t pad;
};

/* One sample; argument of every kernel. */
struct bench_args {
    int32_t op, type, scope;  /* enum bench_op, bench_type, bench_scope */
    int32_t pe, peer, n_pes;
    uint32_t warmup, rounds;
    uint64_t bytes;           /* of an operation, of all blocks together; ping-pongs: of each block */
    uint64_t base;            /* rounds in all kernels before this one: signals and epochs only grow */
    uint64_t never;           /* a value that no word takes: what hides from the compiler that something is not needed */
    int32_t quiet;            /* quiet in each round */
    int32_t released;         /* TERN_RELEASED */
    uint32_t stage;           /* bytes of shared memory to lend to the runtime */
    uint32_t timeout_ms;
    char *src, *dst;          /* on the heap */
    uint64_t *words;          /* on the heap: signals, atomics; a line of 128 bytes for each block or PE */
    uint64_t *floor_words;    /* the same for the raw loops */
    /* the peer's, for the raw loops */
    char *peer_src, *peer_dst;
    uint64_t *peer_words;
    uint64_t *const *all_words; /* [n_pes] floor_words of each PE (own memory) */
    char *const *all_dst;       /* [n_pes] */
    struct bench_out *out;      /* [blocks], local */
};

#define BENCH_LINE 16u /* words of a line */

/* ---- tests.cu, floors.cu, check.cu: launches; each returns at once ----------------------------------------------------------- */

tern_status_t bench_test_launch(enum bench_test test, const tern_ctx_t *ctx, const struct bench_args *a, int blocks,
                                int threads);
tern_status_t bench_floor_launch(enum bench_test test, enum bench_floor floor, const struct bench_args *a, int blocks,
                                 int threads);
/* What the raw loop does, in a few words; NULL where the test has no such floor. */
const char *bench_floor_name(enum bench_test test, enum bench_floor floor, const struct bench_args *a);

/* Byte i of a pattern: never the same for two patterns. */
enum bench_pattern { BENCH_PATTERN_CLEAR, BENCH_PATTERN_DATA };
tern_status_t bench_fill_launch(char *to, uint64_t bytes, enum bench_pattern pattern);
tern_status_t bench_verify_launch(const char *at, uint64_t bytes, enum bench_pattern pattern, struct bench_out *out);
/* Elements for g (small numbers) and words of atomics before their test. */
tern_status_t bench_elements_launch(char *to, int count, int type);
tern_status_t bench_words_launch(const struct bench_args *a, uint64_t *words, int count);
/* The words as `done` rounds of an atomic must leave them; the elements as a p that ended with round `last` does. */
tern_status_t bench_words_verify_launch(const struct bench_args *a, const uint64_t *words, int count, uint64_t done,
                                        struct bench_out *out);
tern_status_t bench_p_verify_launch(const struct bench_args *a, const char *at, int count, uint64_t last,
                                    struct bench_out *out);
/* Tests that verify each of their rounds: put-signal-pingpong, barrier, sync. */
tern_status_t bench_rounds_launch(enum bench_test test, const tern_ctx_t *ctx, const struct bench_args *a, int blocks,
                                  int threads);

/* ---- proxy.cu: tests that are BENCH_PROXIED; open before, with the thread that answers the raw loop of proxy-nop ------------- */
bool bench_proxy_open(bool echo, bool few_cores);
void bench_proxy_close(void);
tern_status_t bench_proxy_launch(enum bench_test test, const tern_ctx_t *ctx, const struct bench_args *a, int blocks,
                                 int threads);
tern_status_t bench_proxy_floor_launch(enum bench_test test, const struct bench_args *a, int blocks, int threads);
/* Every PE: what it got by proxy-rate, whose last round was number `last`. */
tern_status_t bench_rate_verify_launch(const struct bench_args *a, int blocks, int threads, uint64_t last,
                                       struct bench_out *out);

/* Device memory of this PE alone, zeroed; NULL on failure. Copies end before they return. */
void *bench_alloc(size_t bytes);
void bench_free(void *ptr);
bool bench_upload(void *dst, const void *src, size_t bytes);
bool bench_download(void *dst, const void *src, size_t bytes);
bool bench_device_sync(void);

/* ---- main.c ---------------------------------------------------------------------------------------------------------------------- */

struct bench_options {
    int test;
    uint64_t min, max;       /* sizes */
    double factor;
    long rounds;             /* of a sample; 0: by size */
    long warmup, samples;
    int blocks, threads, scope, type, op;
    uint32_t stage;
    bool check, json, released;
    const char *plot;
    const char *command;     /* as typed */
};

/* Results of one size. */
struct bench_result {
    uint64_t bytes;
    long rounds;
    double us_min, us_median, us_p99, gbps;
    double floor_us;         /* median; 0: none */
    const char *floor;
    int64_t wrong;           /* -1: not checked */
};

extern const char *const bench_test_name[BENCH_TEST_COUNT], *const bench_test_text[BENCH_TEST_COUNT];
extern const char *const bench_op_name[BENCH_OP_COUNT], *const bench_type_name[BENCH_TYPE_COUNT];
extern const char *const bench_scope_name[3];

/* ---- options.c ------------------------------------------------------------------------------------------------------------------- */

/* -1: go on; else the exit status: 0 after --help, 2 after a message about what is wrong. */
int bench_options_parse(struct bench_options *o, int argc, char **argv);

/* ---- output.c: PE 0 only --------------------------------------------------------------------------------------------------------- */

struct bench_place {
    int pes, sharers;
    const char *path; /* from PE 0 to its peer */
    const char *machine;
};
void bench_print_head(const struct bench_options *o, const struct bench_place *place);
void bench_print(const struct bench_options *o, const struct bench_place *place, const struct bench_result *r);
/* Is what --plot needs here? Prints what is missing. */
bool bench_plot_possible(const struct bench_options *o);
bool bench_plot(const struct bench_options *o, const struct bench_place *place, const struct bench_result *r, int count);

#ifdef __cplusplus
}
#endif
#endif
