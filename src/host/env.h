/*
 * env.h - the TERN_* variables: one table yields the parser, `tern-info --env` and the README's table.
 *   X(NAME, field, kind, default, low, high, choices, equal, meaning)
 * kind: bool, int, power (of two), size (K/M/G/T suffixes), enum (choices: names separated by '|', value = position), string.
 * equal: 1 = must be equal on all PEs (part of the configuration hash). Variables of a library part are added with it.
 */
#ifndef TERN_HOST_ENV_H
#define TERN_HOST_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tern/types.h>

/* clang-format off */
#define TERN_ENV_TABLE(X) \
    X(TERN_BOOTSTRAP,    bootstrap,    enum,   "auto",  0, 0, "auto|pmix|singleton", 0, "how the PEs meet; auto: PMIx where a launcher is, else one PE") \
    X(TERN_LOG,          log,          enum,   "warn",  0, 0, "none|error|warn|info|debug|trace", 0, "what is logged") \
    X(TERN_LOG_FILE,     log_file,     string, "",      0, 0, "", 0, "log to this file; %p is replaced by the PE, %h by the host; empty: stderr") \
    X(TERN_CHECK,        check,        bool,   "0",     0, 1, "", 1, "device calls check PE, address, size, alignment and context; a failed check aborts the job with a report") \
    X(TERN_TIMEOUT_MS,   timeout_ms,   int,    "30000", 1, 2147483647, "", 0, "bound of tern_init and of host calls that wait for other PEs") \
    X(TERN_DEVICE_TIMEOUT_MS, device_timeout_ms, int, "1800000", 1, 2147483647, "", 0, "bound of device collectives, after which the job is aborted; user waits have none") \
    X(TERN_ON_DEATH,     on_death,     enum,   "abort", 0, 0, "abort|mask", 1, "death of a PE: abort the job, or mark the PE dead and go on") \
    X(TERN_HEAP_SIZE,    heap_size,    size,   "0",     0, 0, "", 1, "user heap backed by memory at init; the heap grows on demand beyond it") \
    X(TERN_HEAP_MAX,     heap_max,     size,   "0",     0, 0, "", 0, "limit of the user heap; 0: the device's memory (CPU device: 4G)") \
    X(TERN_GPU,          gpu,          int,    "-1",    -1, 1024, "", 0, "device ordinal; -1: local rank mod visible devices") \
    X(TERN_DISABLE_P2P,  disable_p2p,  bool,   "0",     0, 1, "", 1, "hide load/store peers from the device (the own heap excepted)") \
    X(TERN_ATOMICS,      atomics,      enum,   "auto",  0, 0, "auto|direct|proxy", 1, "where atomics are executed; direct: the program updates no word over both paths") \
    X(TERN_TRANSPORT,    transport,    enum,   "auto",  0, 0, "auto|null|loopback|ucx|verbs", 1, "what carries operations to PEs out of reach of loads and stores; null moves nothing, loopback is for tests") \
    X(TERN_PROXY_THREADS, proxy_threads, int,  "1",     1, 64, "", 1, "threads of the proxy; PE p is served by thread p mod this") \
    X(TERN_CHANNELS,     channels,     power,  "32",    1, 256, "", 0, "rings of each proxy thread; a block uses one of them") \
    X(TERN_PROXY_PENDING, proxy_pending, int,  "4096",  16, 1048576, "", 0, "operations that the proxy holds for a slow PE before rings stall") \
    X(TERN_STRICT_RELEASE, strict_release, bool, "0",   0, 1, "", 0, "sources of proxied puts are released at system scope, not at GPU scope") \
    X(TERN_NIC,          nic,          string, "",      0, 0, "", 0, "RDMA devices of this node, dev[:port],..., dealt out to its PEs; none: the nearest of each PE") \
    X(TERN_GID_INDEX,    gid_index,    int,    "-1",    -1, 255, "", 0, "GID of the RDMA port; -1: one of RoCE v2, of IPv4 if there is one") \
    X(TERN_SYSFS_ROOT,   sysfs_root,   string, "",      0, 0, "", 0, "tests: folder in place of /sys when RDMA devices are chosen") \
    X(TERN_LOOPBACK_FAULTS, loopback_faults, string, "", 0, 0, "", 1, "tests: delay=LO-HIus,reorder=P,credits=N,fail=K,pe=N,kill=PE@K,seed=S") \
    X(TERN_DUMP_SIGNAL,  dump_signal,  int,    "0",     0, 64, "", 0, "signal number at which rings and operations are written to the log; 0: none") \
    X(TERN_ALLOW_TIMESLICE, allow_timeslice, bool, "0", 0, 1, "", 0, "let PEs share a GPU without MPS (they are then time-sliced, milliseconds a turn)") \
    X(TERN_CPU_SMS,      cpu_sms,      int,    "16",    1, 1024, "", 1, "CPU device: multiprocessors of a PE; with 2048 threads each they bound how many blocks run at once") \
    X(TERN_CPU_WEAK,     cpu_weak,     int,    "0",     0, 9223372036854775807, "", 0, "CPU device built with -Dweak=true: seed of the order in which stores become visible; 0: as the CPU does it") \
    X(TERN_CPU_MUTANT,   cpu_mutant,   string, "",      0, 0, "", 0, "CPU device built with -Dmutants=true: turn this ordering operation of order.h off, to see a test fail") \
    X(TERN_TEST_SCALE,   test_scale,   int,    "1",     1, 1000, "", 0, "multiplies heartbeat bounds and test limits on slow machines")
/* clang-format on */

#define TERN_ENV_TYPE_bool int
#define TERN_ENV_TYPE_int int64_t
#define TERN_ENV_TYPE_power int64_t
#define TERN_ENV_TYPE_size uint64_t
#define TERN_ENV_TYPE_enum int
#define TERN_ENV_TYPE_string char *

struct tern_env {
#define TERN_ENV_FIELD(name, field, kind, def, low, high, choices, equal, meaning) TERN_ENV_TYPE_##kind field;
    TERN_ENV_TABLE(TERN_ENV_FIELD)
#undef TERN_ENV_FIELD
};

/*
 * Parse all variables; a bad value is TERN_ERR_CONFIG naming variable, value and what is allowed (the first one is told),
 * and the field has its default, so that `env` can be used either way. Unknown TERN_* names are warned of once.
 */
tern_status_t tern_env_load(struct tern_env *env);
void tern_env_warn_unknown(void);
void tern_env_unload(struct tern_env *env);
/* Hash of the values that must be equal on all PEs. */
uint64_t tern_env_hash(const struct tern_env *env);

/* The table as data. */
enum tern_env_kind { TERN_ENV_bool, TERN_ENV_int, TERN_ENV_power, TERN_ENV_size, TERN_ENV_enum, TERN_ENV_string };
struct tern_env_entry {
    const char *name, *def, *choices, *meaning;
    enum tern_env_kind kind;
    int64_t low, high;
    int equal;
    size_t offset;                  /* of the field in struct tern_env */
};
extern const struct tern_env_entry tern_env_entries[];
extern const int tern_env_count;
/* Value of an entry as text; "" for an empty string. */
void tern_env_text(const struct tern_env *env, const struct tern_env_entry *entry, char *buf, size_t bytes);
/* What is allowed, as text: "0|1", "an integer from 1 to 1024", ... */
void tern_env_allowed(const struct tern_env_entry *entry, char *buf, size_t bytes);
bool tern_env_is_default(const struct tern_env *env, const struct tern_env_entry *entry);

#endif
