/*
 * cases.c - what is explored: programs that have to hold; what a destination that never completes must not stop, and
 * what it may; and for each mutation a program that shows it.
 */
#include "model.h"

#define MUTATION_NAME(name, what) [MUTATION_##name] = #name,
#define MUTATION_TEXT(name, what) [MUTATION_##name] = what,
const char *const mutation_names[MUTATIONS_COUNT] = {[MUTATION_none] = "none", MUTATIONS(MUTATION_NAME)};
const char *const mutation_texts[MUTATIONS_COUNT] = {[MUTATION_none] = "", MUTATIONS(MUTATION_TEXT)};

#define CH(...) .channel = {__VA_ARGS__}
#define UNORDERED (UCX | LOOPBACK)
/* A case of a mutation: m(its name, program, what is seen, the rest). */
#define MUTANT_CASE(m, seen, ...)                                                                                      \
    {                                                                                                                  \
        .name = "mutant " #m, .mutation = MUTATION_##m, .expect = seen, __VA_ARGS__                                    \
    }

/* A case in few lines. */
/* clang-format off */
const struct config cases[] = {
    /* ---- rings --------------------------------------------------------------------------------------------------- */
    {"laps and torn entries", {"P0 P0 P0 L0", "P0 P0 P0"}, .depth = 2, .credits = 1, .pending = 1,
     .nets = VERBS | NULL_NET, .detail = HALVES | LAZY},
    {"two units that wrap", {"P0 L0 P0", "L0 P1"}, .depth = 2, .credits = 1, .pending = 1, .dests = 2,
     .nets = VERBS | UCX, .detail = HALVES | LAZY},

    /* ---- fences -------------------------------------------------------------------------------------------------- */
    {"fence over two rings", {"P0 P0 P0 S1", "S1 F P0 P0"}, CH(0, 1), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .detail = HALVES | LAZY},
    {"fences across", {"P0 F P1 F P0", "P1 F P0 F P1", "P0 F P1"}, CH(0, 1), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .dests = 2, .nets = VERBS},
    {"fences of three rings", {"P0 F P0", "P0 F P0", "P0 F P0"}, CH(0, 1, 2), .channels = 3, .depth = 2, .credits = 1,
     .pending = 1},
    {"fences of four blocks", {"P0 F P0", "P0 F P0", "F P0", "F P0"}, CH(0, 1, 0, 1), .channels = 2, .depth = 2,
     .credits = 1, .pending = 1, .nets = VERBS | UCX},
    {"rings full of fences", {"F F F", "F F F", "P0 F"}, CH(0, 1, 0), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .nets = VERBS, .detail = LAZY},
    {"atomic, fence, put", {"A0 F P0 P0", "A0 P0"}, CH(0, 1), .channels = 2, .detail = HALVES | LAZY},
    {"atomic, sync, fence, put", {"A0 S1 P0", "S1 F P0 P0", "A0 P0"}, CH(0, 1, 1), .channels = 2, .detail = LAZY},
    {"atomics and block fences", {"A0 f P0 f A0", "A0 f P0"}, .credits = 3, .detail = LAZY},
    {"atomics, two proxy threads", {"A0 A1 S1 P1", "S1 F P1 P0", "A1 P0"}, CH(0, 1, 1), .proxies = 2, .channels = 2,
     .pending = 1, .dests = 2, .detail = LAZY, .nets = VERBS},
    {"gets, fence, put", {"N0 F P0", "P0 F N0 P0"}, CH(0, 1), .channels = 2, .detail = LAZY},
    {"put, sync, fence, put; block fence", {"P0 P0 S1", "S1 F P0", "P0 f P0"}, CH(0, 1, 1), .channels = 2,
     .detail = LAZY},
    {"fences, two proxy threads", {"P0 A1 S1", "S1 F P1 P0", "L1 F P1"}, CH(0, 1, 1), .proxies = 2, .channels = 2,
     .dests = 2},

    /* ---- put_signal ---------------------------------------------------------------------------------------------- */
    {"put_signal and fence", {"L0 P0 F L0", "L0 F P0"}, CH(0, 1), .channels = 2, .detail = LAZY},
    {"put_signal with ADD", {"M0 F P0 F M0", "L0 F A0"}, CH(0, 1), .channels = 2, .credits = 3, .nets = VERBS | UCX,
     .detail = LAZY},
    {"put_signal with ADD, others go on", {"M0 P0 M0", "P0 F M0"}, .credits = 2, .detail = LAZY},

    /* ---- RPCs ---------------------------------------------------------------------------------------------------- */
    {"RPC and fence", {"R0 F P0 F R0", "P0 F R0"}, CH(0, 1), .channels = 2, .detail = LAZY},
    {"RPC and native atomic", {"A0 F R0 F A0 P0", "R0 P1 F P1"}, CH(0, 1), .channels = 2, .dests = 2, .detail = LAZY},
    {"RPC, two proxy threads", {"R0 R1 S1", "S1 F P0 P1", "R1 Qa"}, CH(0, 1, 1), .proxies = 2, .channels = 2,
     .dests = 2},
    {"RPCs of one message", {"P0 R0 R0 R0 P0", "R0 F R0 P0"}, CH(0, 1), .channels = 2, .pending = 3, .detail = LAZY},
    {"RPCs of one message and fences", {"P0 R0 F R0 F P0 R0", "R0 F P0"}, .pending = 4, .batch = 3, .detail = LAZY},

    /* ---- quiets -------------------------------------------------------------------------------------------------- */
    {"quiet", {"P0 P1 S1", "S1 Qa P0", "P0 Qa"}, CH(0, 1), .channels = 2, .depth = 2, .credits = 1, .pending = 1,
     .dests = 2, .detail = LAZY},
    {"quiet of puts, gets, atomics, signals", {"N0 A0 L0 Qa", "P0 R0 Qa"}, CH(0, 1), .channels = 2, .detail = LAZY},
    {"quiet_pe", {"P0 P1 S1 Q1", "S1 Q0 P0", "P1 Q1"}, CH(0, 1, 1), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .dests = 2},
    {"quiet_pe, two proxy threads", {"P0 P1 S1 Q1", "S1 Q0 P0", "P1 Q1"}, CH(0, 1, 1), .proxies = 2, .channels = 2,
     .depth = 2, .credits = 1, .pending = 1, .dests = 2, .detail = LAZY},
    {"quiet_block", {"P0 A1 q P0", "P0 q P1"}, .pending = 1, .dests = 2, .detail = LAZY},
    {"quiet, two proxy threads", {"P0 P1 S1", "S1 Qa P1", "P1 Qa"}, CH(0, 1, 1), .proxies = 2, .channels = 2,
     .depth = 2, .credits = 1, .pending = 1, .dests = 2, .detail = LAZY},
    {"quiets, two proxy threads, one slot each", {"P0 P1 Qa", "P1 Qa", "P0 G1"}, .proxies = 2, .depth = 2, .credits = 1,
     .pending = 1, .dests = 2},

    /* ---- replies ------------------------------------------------------------------------------------------------- */
    {"four blocks, two slots", {"G0 P0", "G0", "G0", "G0"}, .depth = 2, .credits = 1, .pending = 1, .slots = 2,
     .detail = LAZY},
    {"slots that are kept", {"P0 Qa", "G0 Qa", "X0 G0"}, .depth = 2, .credits = 1, .pending = 1, .slots = 2, .kept = 1,
     .detail = LAZY},
    {"blocking put and get", {"B0 P0 g0", "g1 B0", "P0 B1"}, .depth = 2, .credits = 1, .pending = 1, .dests = 2,
     .detail = LAZY},
    {"blocking, two proxy threads", {"B0 B1 F P0", "g1 B0", "X0 Qa"}, CH(0, 1, 1), .proxies = 2, .channels = 2,
     .depth = 2, .credits = 1, .pending = 1, .dests = 2, .nets = VERBS | UCX},

    /* ---- load/store peers whose atomics home is the proxy -------------------------------------------------------- */
    {"direct stores, answered atomics", {"A0 F P0 F A0", "P0 A0 P0"}, CH(0, 1), .channels = 2, .pending = 1,
     .direct = 1, .nets = VERBS | UCX, .detail = LAZY},
    {"the same after a sync", {"A0 P0 S1", "S1 F P0 A0", "M0 F P0"}, CH(0, 1, 1), .channels = 2, .pending = 1,
     .direct = 1, .nets = VERBS | UCX, .detail = LAZY},
    {"the same by RPC", {"R0 F P0", "P0 F R0 F L0", "M0"}, .pending = 1, .slots = 2, .direct = 1, .nets = VERBS | UCX,
     .detail = LAZY},
    {"one direct, one far, two proxy threads", {"A0 F P0 A1", "P0 P1 F M0", "A1 F P1 F A0"}, CH(0, 1, 1), .proxies = 2,
     .channels = 2, .dests = 2, .direct = 1, .nets = VERBS | UCX, .big = true},
    {"quiet with direct stores", {"P0 P1 A0 S1", "S1 Qa P0", "P1 Qa"}, CH(0, 1, 1), .channels = 2, .depth = 2,
     .credits = 1, .pending = 1, .dests = 2, .direct = 1, .nets = VERBS | UCX, .detail = LAZY},
    {"block fences with direct stores", {"P0 f P0 f A0 f P0", "A0 f M0"}, .pending = 1, .slots = 2, .direct = 1,
     .nets = VERBS | UCX, .detail = LAZY},

    /* ---- quiet of the host --------------------------------------------------------------------------------------- */
    {"host quiet", {"P0 L1 E S1", "S1 H", "P1"}, CH(0, 0, 1), .channels = 2, .dests = 2, .detail = HALVES | LAZY},
    {"host quiet beside a kernel's hole", {"P0 E S1", "S1 H", "P0 P0 F P0"}, .detail = LAZY},
    {"host quiet, a ring that stalls", {"P0 P0 P0 P0 E S1", "S1 H"}, .depth = 2, .credits = 1, .pending = 1,
     .detail = HALVES | LAZY},
    {"host quiet, two proxy threads", {"P0 R1 E S1 P0", "S1 H S2", "L1 S2 P1"}, CH(0, 0, 1), .proxies = 2,
     .channels = 2, .dests = 2},

    /* ---- a destination that never completes: what it does not stop ----------------------------------------------- */
    {"slow: another ring", {"P1 P1 P1 P0", "P0 P0 G0", "P0 f P0"}, CH(0, 1, 1), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .dests = 2, .never = 2, .must = 6, .nets = VERBS | UCX, .detail = LAZY},
    {"slow: below its bound", {"P1 P1 P0", "P0 F P0 Q0", "P0"}, CH(0, 1), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .dests = 2, .never = 2, .must = 7, .nets = VERBS | UCX, .detail = LAZY},
    {"slow: ring mates of a block that fences", {"P1 P1 P1", "F P0", "P0 P0 f P0"}, CH(0, 1, 1), .channels = 2,
     .depth = 2, .credits = 1, .pending = 1, .dests = 2, .never = 2, .must = 4, .nets = VERBS | UCX, .detail = LAZY},
    {"slow: behind two blocks that fence", {"P1 P1 P1", "F P0", "F P0", "P0 G0"}, CH(0, 1, 2, 2), .channels = 3,
     .depth = 2, .credits = 1, .pending = 1, .dests = 2, .never = 2, .must = 8, .nets = VERBS | UCX},
    {"slow: beside a quiet of all", {"P1 P1", "Qa", "P0 G0"}, CH(0, 1, 1), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .dests = 2, .slots = 2, .never = 2, .must = 4, .nets = VERBS | UCX, .detail = LAZY},
    {"slow: two proxy threads", {"P1 P1 P1", "P0 Q0", "P0 G0 F P0"}, .proxies = 2, .depth = 2, .credits = 1,
     .pending = 3, .dests = 2, .slots = 2, .never = 2, .must = 6, .nets = VERBS | UCX},
    {"slow: RPC", {"R1 P1 P1", "R0 F P0 Q0", "P0 R0"}, CH(0, 1), .channels = 2, .depth = 2, .credits = 1, .pending = 3,
     .dests = 2, .never = 2, .must = 6, .nets = VERBS | UCX},
    {"slow: fenced puts and signals", {"P1 f P1 L1", "P0 f P0 L0", "L0 F P0"}, .credits = 1, .pending = 3, .dests = 2,
     .never = 2, .must = 7, .nets = VERBS | UCX},
    {"slow: direct stores", {"P1 P1 P1", "A0 P0 f A0", "M0"}, CH(0, 1, 1), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .dests = 2, .direct = 1, .never = 2, .must = 6, .nets = VERBS | UCX},
    {"slow: slots that are kept", {"P1", "Qa", "G0 X0"}, CH(0, 1, 1), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .dests = 2, .slots = 2, .kept = 1, .never = 2, .must = 4, .nets = VERBS | UCX, .detail = LAZY},
    {"slow: slot after step 3", {"P1 P1 P1", "Q0", "B0"}, CH(0, 1, 1), .channels = 2, .depth = 2, .credits = 1,
     .pending = 1, .dests = 2, .never = 2, .must = 4, .nets = VERBS | UCX, .detail = LAZY},
    {"slow: quiet_pe, other proxy thread", {"P1 P1 P1", "Q0 P0"}, CH(0, 1), .proxies = 2, .channels = 2, .depth = 2,
     .credits = 1, .pending = 1, .dests = 2, .never = 2, .must = 2, .nets = VERBS | UCX, .detail = LAZY},

    /* ---- what it may stop: when it owes its bound, its ring and fences; when it holds all slots, their ring ------ */
    {"stopped: the same ring", {"P1 P1 P1 P0", "P0"}, .depth = 2, .credits = 1, .pending = 1, .dests = 2, .never = 2,
     .must = 2, .nets = VERBS | UCX, .detail = LAZY, .expect = "(5)"},
    {"stopped: a fence", {"P1 P1 P1", "F P0"}, CH(0, 1), .channels = 2, .depth = 2, .credits = 1, .pending = 1,
     .dests = 2, .never = 2, .must = 2, .nets = VERBS | UCX, .detail = LAZY, .expect = "(5)"},
    {"stopped: who needs a slot", {"G1", "G0"}, .depth = 2, .credits = 1, .pending = 1, .dests = 2, .never = 2,
     .must = 2, .nets = VERBS | UCX, .detail = LAZY, .expect = "(5)"},

    /* ---- mutations: rings ---------------------------------------------------------------------------------------- */
    MUTANT_CASE(one_half, "(3)", .script = {"P0"}, .depth = 2, .nets = NULL_NET, .detail = HALVES),
    MUTANT_CASE(no_parity, "(3)", .script = {"P0 P0 P0"}, .depth = 2, .nets = NULL_NET, .detail = HALVES | LAZY),
    MUTANT_CASE(cache_too_high, "(3)", .script = {"P0 P0 P0"}, .depth = 2, .credits = 1, .pending = 1, .nets = VERBS,
                .detail = HALVES | LAZY),
    MUTANT_CASE(freed_at_completion, "(5)", .script = {"P1", "P0 P0 P0"}, .depth = 2, .dests = 2, .never = 2, .must = 2,
                .nets = VERBS | UCX),
    MUTANT_CASE(taken_lazily, "(4)", .script = {"P0 S1", "S1 F P0"}, CH(0, 1), .channels = 2, .depth = 2),
    MUTANT_CASE(reply_apart, "(2)", .script = {"B0", "P1 G0"}, .dests = 2, .slots = 2, .nets = VERBS | UCX),
    /* ---- fence --------------------------------------------------------------------------------------------------- */
    MUTANT_CASE(no_system_fence, "(1)", .script = {"P0 S1", "S1 F P0"}, CH(0, 1), .channels = 2, .direct = 1,
                .nets = VERBS),
    MUTANT_CASE(no_system_fence, "(1)", .script = {"M0"}, .direct = 1, .nets = VERBS | UCX),
    MUTANT_CASE(no_system_fence, "(2)", .script = {"P0 Qa"}, .direct = 1, .nets = VERBS),
    MUTANT_CASE(block_fence_no_system_fence, "(1)", .script = {"P0 f P0"}, .direct = 1, .nets = VERBS),
    MUTANT_CASE(other_rings_ignored, "(1)", .script = {"P0 S1", "S1 F P0"}, CH(0, 1), .channels = 2),
    MUTANT_CASE(other_rings_ignored, "(2)", .script = {"P0 S1", "S1 Qa"}, CH(0, 1), .channels = 2),
    MUTANT_CASE(no_fence_entry, "(1)", .script = {"A0 F P0"}, .nets = VERBS),
    MUTANT_CASE(no_fence_entry, "(1)", .script = {"P0 f P0"}, .nets = UNORDERED),
    MUTANT_CASE(fence_entry_one_proxy, "(1)", .script = {"A1 F P1"}, .proxies = 2, .dests = 2, .nets = VERBS),
    MUTANT_CASE(fence_entry_one_proxy, "(1)", .script = {"P1 F P1"}, .proxies = 2, .dests = 2, .nets = UNORDERED),
    MUTANT_CASE(fence_entry_first, "(1)", .script = {"A0 S1", "S1 F P0"}, CH(0, 1), .channels = 2, .nets = VERBS),
    MUTANT_CASE(fence_entry_first, "(1)", .script = {"P0 S1", "S1 F P0"}, CH(0, 1), .channels = 2, .nets = UNORDERED),
    MUTANT_CASE(after_ignored, "(1)", .script = {"A0 F P0"}, .nets = VERBS),
    MUTANT_CASE(after_ignored, "(1)", .script = {"P0 F P0"}, .nets = UNORDERED),
    MUTANT_CASE(after_own_ring, "(1)", .script = {"A0 S1", "S1 F P0"}, CH(0, 1), .channels = 2, .nets = VERBS),
    MUTANT_CASE(after_own_ring, "(1)", .script = {"P0 S1", "S1 F P0"}, CH(0, 1), .channels = 2, .nets = UNORDERED),
    MUTANT_CASE(after_without_signal, "(1)", .script = {"L0 F P0"}, .nets = UNORDERED),
    MUTANT_CASE(pending_bypassed, "(1)", .script = {"P0 P0 F P0"}, .credits = 1, .nets = VERBS, .detail = LAZY),
    MUTANT_CASE(signal_with_data, "(1)", .script = {"L0"}, .nets = UNORDERED),
    MUTANT_CASE(signal_split_in_parts, "(3)", .script = {"P0 P0 M0"}, .credits = 1, .nets = UNORDERED),
    /* ---- completion ---------------------------------------------------------------------------------------------- */
    MUTANT_CASE(flush_not_for_fence, "(4)", .script = {"P0 F P0"}, .nets = UCX),
    MUTANT_CASE(flush_not_for_rpc, "(4)", .script = {"P0 R0"}, .nets = VERBS | UCX),
    MUTANT_CASE(flush_not_for_quiet, "(4)", .script = {"P0 Qa"}, .nets = VERBS | UCX),
    MUTANT_CASE(flush_once, "(4)", .script = {"P0 P0 Qa"}, .credits = 1, .nets = VERBS | UCX),
    MUTANT_CASE(flush_when_all_posted, "(4)", .script = {"P0 P0 R0 P0 Qa"}, .credits = 1, .pending = 4,
                .nets = VERBS | UCX),
    MUTANT_CASE(quiet_local, "(2)", .script = {"P0 Qa"}, .nets = VERBS | UNORDERED),
    MUTANT_CASE(quiet_ignores_pending, "(2)", .script = {"P0 P0 Qa"}, .credits = 1, .nets = VERBS | UNORDERED),
    MUTANT_CASE(quiet_needs_room, "(5)", .script = {"P1 P1", "Qa", "P0 G0"}, CH(0, 1, 1), .channels = 2, .depth = 2,
                .credits = 1, .pending = 1, .dests = 2, .slots = 2, .never = 2, .must = 4, .nets = VERBS | UCX,
                .detail = LAZY),
    MUTANT_CASE(quiet_counts, "(2)", .script = {"P0 Qa", "P0"}, CH(0, 1), .channels = 2, .nets = LOOPBACK),
    MUTANT_CASE(quiet_pe_all_proxies, "(5)", .script = {"P1 P1 P1", "Q0"}, CH(0, 1), .proxies = 2, .channels = 2,
                .depth = 2, .credits = 1, .pending = 1, .dests = 2, .never = 2, .must = 2, .nets = VERBS | UCX),
    MUTANT_CASE(reply_at_posting, "(2)", .script = {"B0"}, .nets = VERBS | UNORDERED),
    /* ---- reply slots --------------------------------------------------------------------------------------------- */
    MUTANT_CASE(slots_start_zero, "(3)", .script = {"G0", "P0"}, .nets = VERBS | UNORDERED),
    MUTANT_CASE(slot_after_ticket, "(4)", .script = {"P0 G0", "G0", "G0"}, .depth = 2),
    MUTANT_CASE(slot_before_wait, "(5)", .script = {"P1 P1 P1", "Q0", "B0"}, CH(0, 1, 1), .channels = 2, .depth = 2,
                .credits = 1, .pending = 1, .dests = 2, .never = 2, .must = 4, .nets = VERBS | UCX),
    MUTANT_CASE(slots_descending, "(4)", .script = {"Qa", "Qa"}, .proxies = 2, .dests = 2),
    MUTANT_CASE(slot_not_freed, "(4)", .script = {"G0 G0"}),
    /* ---- atomics ------------------------------------------------------------------------------------------------- */
    MUTANT_CASE(rpc_not_waiting, "(1)", .script = {"P0 F R0"}, .nets = VERBS | UNORDERED),
    MUTANT_CASE(rpc_not_waiting, "(1)", .script = {"M0"}, .nets = UNORDERED),
    MUTANT_CASE(rpc_no_hold, "(1)", .script = {"R0 F P0"}, .nets = VERBS),
    MUTANT_CASE(rpc_hold_until_first, "(1)", .script = {"P0 R0 R0 F P0"}, .pending = 3, .nets = VERBS),
    MUTANT_CASE(rpc_reordered, "(1)", .script = {"P0 R0 F R0"}, .pending = 3, .nets = VERBS | UNORDERED),
    MUTANT_CASE(rpc_gathers, "(1)", .script = {"P0 R0 F P0 F R0"}, .pending = 3, .depth = 4, .nets = VERBS | UNORDERED),
    MUTANT_CASE(direct_atomic_not_answered, "(1)", .script = {"A0 F P0"}, .direct = 1, .nets = VERBS | UCX),
    /* ---- quiet of the host --------------------------------------------------------------------------------------- */
    MUTANT_CASE(host_quiet_no_intake, "(2)", .script = {"P0 E S1", "S1 H"}),
    MUTANT_CASE(host_quiet_one_proxy, "(2)", .script = {"P1 E S1", "S1 H"}, .proxies = 2, .dests = 2),
    MUTANT_CASE(host_quiet_stops_at_hole, "(2)", .script = {"P0 E S1", "S1 H", "P0"}),
};
/* clang-format on */
const size_t cases_count = sizeof cases / sizeof cases[0];
