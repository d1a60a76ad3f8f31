/*
 * model.h - what the files of the model checker share: configurations, programs, states, mutations.
 *
 * The checker explores, breadth first, every interleaving of small programs that a few blocks of a PE run against the
 * proxy: program.c turns scripts into steps, gpu.c takes the blocks' steps and makes stores visible, proxy.c takes
 * entries from rings and carries operations to destinations, net.c says in which order they may arrive there, explore.c
 * searches, cases.c lists what is searched and what must be found, fuzz.c makes random programs.
 *
 * A thread of the model stands for one block, always on one channel. The ring of channel c and proxy thread k has the
 * number c * threads + k; destination d belongs to proxy thread d % threads. Tokens of scripts, d = a destination's
 * digit: Pd put                     Ld put + SET signal        Md put + ADD signal Ad add, 8 bytes            Rd any
 * other atomic        Xd fetching add            none of A, R fetches Bd blocking put            gd blocking get Gd g
 * Nd get, not blocking F fence   f fence_block    Qa quiet   Qd quiet_pe     q quiet_block Sn grid sync n of all
 * threads that name it            E the kernel ends (what follows is another kernel) H quiet of the host, by an
 * application thread Where d is a load/store peer (config.direct) whose atomics home is the proxy, P, L and the put of
 * M are direct stores, and A, R, X and the ADD of M go by the proxy and are answered.
 *
 * What must hold: (1) order of fences and of put_signals at each destination; (2) quiets, blocking calls and answers
 * come when what they tell has happened; (3) nothing is lost, torn, overwritten or done twice, each reply goes to
 * whoever asked; (4) no deadlock; (5) a destination that never completes stops only what may be stopped.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MAX_THREADS = 4,
    MAX_PROXIES = 2,
    MAX_RINGS = 6,
    MAX_DEPTH = 4,
    MAX_SLOTS = 3,
    MAX_DESTS = 2,
    MAX_LISTED = 8, /* operations to one destination that have not arrived */
    MAX_ENTRIES = 24,
    MAX_WIRES = 24,
    MAX_ANSWERS = 8,
    MAX_STEPS = 96
};
#define NONE 255

/* ---- mutations: what is left out or done wrong, one at a time ---------------------------------------------------- */
#define MUTATIONS(X)                                                                                                   \
    /* rings */                                                                                                        \
    X(one_half, "the proxy looks at the parity of W0 only")                                                            \
    X(no_parity, "units have no lap parity")                                                                           \
    X(cache_too_high, "the cached `taken` is ahead of the published one")                                              \
    X(freed_at_completion, "a unit is freed when the network has completed it")                                        \
    X(taken_lazily, "`taken` is published every second unit, not after every visit")                                   \
    X(reply_apart, "PUT and REPLY are reserved by two tickets")                                                        \
    /* fence */                                                                                                        \
    X(no_system_fence, "step 1 is left out, everywhere")                                                               \
    X(block_fence_no_system_fence, "step 1 is left out in fence_block")                                                \
    X(other_rings_ignored, "steps 2 and 3 are left out")                                                               \
    X(no_fence_entry, "step 4 is left out")                                                                            \
    X(fence_entry_one_proxy, "step 4 only for proxy thread 0")                                                         \
    X(fence_entry_first, "step 4 before step 1")                                                                       \
    X(after_ignored, "the number of a ring's FENCE is not looked at")                                                  \
    X(after_own_ring, "the number of a FENCE counts its own ring's operations only")                                   \
    X(after_without_signal, "a put_signal counts as complete when its data are")                                       \
    X(pending_bypassed, "an operation goes past pending ones to the send queue")                                       \
    X(signal_with_data, "unordered transport: the signal leaves with the data")                                        \
    X(signal_split_in_parts, "put and RPC of an ADD signal: taken with room for one")                                  \
    /* completion */                                                                                                   \
    X(flush_not_for_fence, "nobody asks for the flush that an operation behind a FENCE waits for")                     \
    X(flush_not_for_rpc, "nobody asks for the flush that an RPC waits for")                                            \
    X(flush_not_for_quiet, "nobody asks for the flush that a quiet waits for")                                         \
    X(flush_once, "what is wanted is forgotten at the first flush, though some of it is pending")                      \
    X(flush_when_all_posted, "a flush is called only when all that is wanted has been posted")                         \
    X(quiet_local, "a quiet waits for what is not posted yet only")                                                    \
    X(quiet_ignores_pending, "a quiet does not wait for pending operations")                                           \
    X(quiet_needs_room, "a QUIET is taken only if its destinations' pending queues have room")                         \
    X(quiet_counts, "a quiet waits for a count of completions")                                                        \
    X(quiet_pe_all_proxies, "quiet_pe waits for the rings of all proxy threads")                                       \
    X(reply_at_posting, "a blocking put is answered when it is posted")                                                \
    /* reply slots */                                                                                                  \
    X(slots_start_zero, "reply slots start as zero")                                                                   \
    X(slot_after_ticket, "a reply slot is taken after the ticket")                                                     \
    X(slot_before_wait, "a quiet takes its reply slots before step 3")                                                 \
    X(slots_descending, "half of the threads take slots in descending order of proxy threads")                         \
    X(slot_not_freed, "a reader keeps its slot")                                                                       \
    /* atomics */                                                                                                      \
    X(rpc_not_waiting, "an RPC leaves before everything earlier is complete")                                          \
    X(rpc_no_hold, "an RPC holds nothing")                                                                             \
    X(rpc_hold_until_first, "the hold ends when the first RPC of a message has been executed")                         \
    X(rpc_reordered, "the RPCs of a message are executed in any order")                                                \
    X(rpc_gathers, "a message takes RPCs from behind other operations")                                                \
    X(direct_atomic_not_answered, "atomics to load/store peers are not answered")                                      \
    /* quiet of the host */                                                                                            \
    X(host_quiet_no_intake, "the proxy does not look into its rings first")                                            \
    X(host_quiet_one_proxy, "only proxy thread 0 is asked")                                                            \
    X(host_quiet_stops_at_hole, "a ring counts as empty where the next unit is not there")

enum mutation {
    MUTATION_none,
#define MUTATION_ENUM(name, what) MUTATION_##name,
    MUTATIONS(MUTATION_ENUM)
#undef MUTATION_ENUM
        MUTATIONS_COUNT
};
#define MUTANT(name) (config->mutation == MUTATION_##name)

/* ---- configurations ---------------------------------------------------------------------------------------------- */
enum net {
    NET_VERBS, /* ordered but for READ and ATOMIC; add is native, other atomics are RPCs; complete by a flush (READ) */
    NET_NULL,  /* ordered, all atomics, complete at once */
    NET_UCX,   /* unordered, all atomics are RPCs, puts are complete by a flush */
    NET_LOOPBACK, /* with reorder: as UCX, complete by itself */
    NETS
};
#define VERBS (1u << NET_VERBS)
#define NULL_NET (1u << NET_NULL)
#define UCX (1u << NET_UCX)
#define LOOPBACK (1u << NET_LOOPBACK)
#define ALL_NETS (VERBS | NULL_NET | UCX | LOOPBACK)

/* Detail that multiplies states, left out where nothing depends on it. */
#define HALVES 1u /* each 8-byte half of an entry becomes visible on its own, late; else all at once with the store */
#define LAZY                                                                                                           \
    2u /* publishing `taken` and posting what is pending are steps of their own; else done as soon as possible */

struct config {
    const char *name, *script[MAX_THREADS];
    int channel[MAX_THREADS];
    /* 0: the default in brackets */
    int proxies;   /* proxy threads (1) */
    int channels;  /* (1) */
    int depth;     /* units of a ring (4) */
    int credits;   /* operations posted to a destination that have not arrived (2) */
    int pending;   /* operations pending to a destination (2) */
    int dests;     /* (1) */
    int slots;     /* reply slots of a ring (1) */
    int kept;      /* of them for g, get and atomics only */
    int batch;     /* RPCs of a message (2) */
    unsigned nets; /* (ALL_NETS) one run on each */
    unsigned detail;
    unsigned direct; /* load/store peers */
    unsigned never;  /* destinations where nothing ever arrives; then the threads in */
    unsigned must;   /* `must` have to end all the same, and what they send elsewhere has to arrive */
    enum mutation mutation;
    const char *expect; /* beginning of the violation, NULL: holds */
    bool big;           /* for soak.sh */
};

/* ---- programs ---------------------------------------------------------------------------------------------------- */
/* What reaches a destination. */
enum wire_kind { WIRE_WRITE, WIRE_AMO, WIRE_READ, WIRE_RPC, WIRE_DIRECT };
struct wire {
    uint8_t kind, dest, thread;
    uint8_t signal; /* a wire that belongs to this one's operation; NONE */
    bool source;    /* a REPLY waits for its source */
    uint32_t needs; /* (1): must have arrived before */
    char name[12];
};
/* An operation of the proxy is called by its first wire; its bit stands for it in the masks of states. */

enum entry_kind { ENTRY_DATA, ENTRY_FENCE, ENTRY_QUIET, ENTRY_REPLY };
#define DEST_ALL 15
struct entry {
    uint8_t kind, dest, units, proxy, ring, thread;
    uint8_t op[2];  /* operations that intake makes of it; NONE */
    uint8_t answer; /* index of the reply owed; NONE */
    char name[12];
};

enum step_kind {
    STEP_RELEASE,     /* step 1 of fence and quiet: a system fence */
    STEP_READ_HEADS,  /* step 2: heads of the other rings (arg: proxy thread + 1, 0 = all) */
    STEP_WAIT_TAKEN,  /* step 3: published `taken` has reached them */
    STEP_SLOT,        /* a reply slot of proxy thread `proxy`; arg: slots not for this use */
    STEP_TICKET,      /* reserve `count` units for entry `arg` and what follows it */
    STEP_STORE,       /* wait for space, store entry `arg`; count: the last one of its ticket */
    STEP_WAIT_REPLY,  /* for entry `arg`; `mask` must have arrived */
    STEP_WAIT_SOURCE, /* for entry `arg`; the source of `mask` must have been read */
    STEP_SYNC,        /* grid sync `arg` of the threads in `count` */
    STEP_DIRECT,      /* direct store `arg` */
    STEP_KERNEL_END,  /* the kernel's stores, in `mask` the direct ones, have arrived */
    STEP_HOST_ASK,    /* quiet of the host: the proxy threads are asked */
    STEP_HOST_WAIT,   /* and have answered; `mask` must have arrived */
    STEP_END
};
struct step {
    uint8_t kind, arg, count, proxy;
    uint32_t mask;
};

struct program {
    int threads, rings, wires, entries, answers;
    bool host; /* a thread of it calls the host's quiet */
    uint32_t ops_of_dest[MAX_DESTS], ops_of_ring[MAX_RINGS];
    struct wire wire[MAX_WIRES];
    struct entry entry[MAX_ENTRIES];
    struct step step[MAX_THREADS][MAX_STEPS];
};

/* ---- states ------------------------------------------------------------------------------------------------------ */
struct thread {
    uint8_t pc;
    uint8_t ticket;                                   /* in hand */
    uint8_t slot[MAX_PROXIES], expected[MAX_PROXIES]; /* reply slots, and the tickets whose answers it waits for */
    uint8_t heads[MAX_RINGS];                         /* step 2 */
};
enum host_phase { HOST_IDLE, HOST_INTAKE, HOST_NOTED };

struct state {
    struct thread thread[MAX_THREADS];
    uint16_t unit[MAX_RINGS][MAX_DEPTH][2]; /* host memory: parity << 15 | unit of entry << 8 | entry + 1 */
    uint8_t head[MAX_RINGS], taken[MAX_RINGS], published[MAX_RINGS];
    uint8_t before[MAX_RINGS]; /* operation of the entry just before + 1: for REPLY */
    uint8_t entry_ticket[MAX_ENTRIES], entry_slot[MAX_ENTRIES];
    uint8_t unseen[MAX_ENTRIES];                  /* halves stored but not visible */
    uint8_t list[MAX_DESTS][MAX_LISTED];          /* operations + 1 in the order taken, but for arrived ones: */
    uint8_t listed[MAX_DESTS], posted[MAX_DESTS]; /* so many; the first ones are posted, all behind are pending */
    uint8_t slots_busy[MAX_RINGS], slot_ticket[MAX_RINGS][MAX_SLOTS], slot_value[MAX_RINGS][MAX_SLOTS];
    uint8_t host_phase[MAX_PROXIES], host_rings[MAX_PROXIES]; /* rings that the host's quiet has not found empty */
    uint32_t host_after[MAX_PROXIES];                         /* operations that it waits for */
    uint32_t fence[MAX_RINGS];   /* incomplete operations older than the ring's last FENCE */
    uint32_t after[MAX_WIRES];   /* those that an operation must follow */
    uint32_t reply[MAX_ANSWERS]; /* REPLY_OWED | those that a reply waits for */
    uint32_t stored;             /* direct stores under way */
    uint32_t arrived;            /* wires that have reached their destination */
    uint32_t sent;               /* operations whose source may be reused */
    uint32_t taken_ops, taken_entries;
    uint32_t open;    /* taken, not complete at the target as far as the proxy knows */
    uint32_t wanted;  /* to be made complete by a flush */
    uint32_t flushed; /* a flush was called for them */
} __attribute__((aligned(8)));
#define REPLY_OWED (1u << 31)
#define REPLY_SOURCE (1u << 30) /* answered when the source may be reused */
#define REPLY_COUNT (1u << 29)  /* mutation quiet_counts: the rest is a number */
#define REPLY_OPS ((1u << MAX_WIRES) - 1)

/* What a step of anything returns. */
enum outcome { BLOCKED, DONE, VIOLATED };

extern const struct config *config;
extern enum net net;
extern struct program program;
extern char violation[400];
extern char described[200]; /* of the step taken last, while `describing` */
extern bool describing;
#define DESCRIBE(...)                                                                                                  \
    do {                                                                                                               \
        if (describing)                                                                                                \
            snprintf(described, sizeof described, __VA_ARGS__);                                                        \
    } while (0)

static inline uint32_t bit(unsigned i)
{
    return 1u << i;
}
static inline bool has(uint32_t mask, unsigned i)
{
    return mask >> i & 1;
}

/* explore.c */
enum outcome violated(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *wire_names(uint32_t mask);
enum result { HOLDS, FOUND, CUT, TOO_BIG };
/* Explore `c` on `n`. @return whether it went as expected. */
struct exploration {
    enum result result;
    size_t states;
    bool as_expected;
};
struct explore_options {
    bool all_steps;     /* no reduction */
    bool traces, quiet; /* print the trace of every violation; print only what is not as expected */
    size_t most_states; /* cut there: a failure, unless `cut_ok` */
    bool cut_ok;
};
struct exploration explore(const struct config *c, enum net n, const struct explore_options *options);

/* program.c: false: too big */
bool program_compile(void);

/* gpu.c */
enum outcome gpu_thread_step(struct state *s, int t);
enum outcome gpu_half_visible(struct state *s, int entry, int half);
bool gpu_step_is_free(const struct state *s, int t); /* it stays possible, and commutes with all others */

/* proxy.c */
enum outcome proxy_visit(struct state *s, int ring); /* take an entry, or find the ring empty */
enum outcome proxy_publish(struct state *s, int ring);
enum outcome proxy_pump(struct state *s, int dest); /* post what is next */
enum outcome proxy_answer(struct state *s, int answer);
bool proxy_owes(const struct state *s, int answer); /* the reply can be given */
enum outcome proxy_settle(struct state *s);         /* what follows at once: completions, flushes; posts unless LAZY */
void proxy_host_ask(struct state *s);
bool proxy_host_answered(const struct state *s);

/* net.c */
bool net_ordered(void);
unsigned net_kind(char token); /* wire kind of the atomics A, R and of ADD signals */
bool net_needs_flush(const struct wire *w);
uint32_t net_op_wires(int op);
enum outcome net_arrive(struct state *s, int wire); /* it is at its destination */
/* The next wire (signal: the operation's second one) of a posted operation arrives. */
enum outcome net_deliver(struct state *s, int dest, int place, bool signal);
enum outcome net_sent(struct state *s, int op); /* the source of a posted put has been read */

/* cases.c */
extern const struct config cases[];
extern const size_t cases_count;
extern const char *const mutation_names[MUTATIONS_COUNT], *const mutation_texts[MUTATIONS_COUNT];

/* fuzz.c */
struct fuzz_result {
    unsigned held, cut, too_big, failed;
    size_t states;
};
struct fuzz_result fuzz(unsigned count, uint64_t seed, enum mutation mutation);

#endif
