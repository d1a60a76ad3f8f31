/* peers_unit.c - who is near, and in which slot: agreement of both ends, ranges and tables, on random views. */
#include "host/peers.h"

#include "common/check.h"

#define MAX_PES 300

static struct tern_peer_view views[MAX_PES];
static struct tern_peer peers[MAX_PES];

static bool view_bit(const uint64_t *words, int i)
{
    return words[i / 64] >> (i % 64) & 1;
}

/* A random node among n PEs; PE i's view of the node's j-th PE. */
static int random_node(int n, int *node_pes, uint64_t *seed, int density)
{
    int count = 0;

    for (int p = 0; p < n; p++)
        if (test_random(seed) % 3)
            node_pes[count++] = p;
    if (!count)
        node_pes[count++] = 0;
    memset(views, 0, sizeof(views));
    for (int p = 0; p < n; p++)
        for (int j = 0; j < count && j < TERN_MAX_NEAR; j++) {
            bool load_store = node_pes[j] == p || (int)(test_random(seed) % 100) < density;

            if (load_store)
                views[p].near[j / 64] |= (uint64_t)1 << (j % 64);
            if (load_store && (node_pes[j] == p || test_random(seed) % 2))
                views[p].atomics[j / 64] |= (uint64_t)1 << (j % 64);
        }
    return count;
}

static void check_meeting(int n, const int *node_pes, int count, int self)
{
    int pe = node_pes[self];

    memset(peers, 0, sizeof(peers));
    tern_peers_meet(peers, pe, node_pes, count, views);
    for (int p = 0; p < n; p++) {
        int j = 0;
        bool both, native;

        while (j < count && node_pes[j] != p)
            j++;
        if (j == count) {
            CHECK(!peers[p].same_node && !peers[p].near && !peers[p].mapped && !peers[p].atomics,
                  "PE %d is not on the node", p);
            continue;
        }
        both = j == self || (j < TERN_MAX_NEAR && self < TERN_MAX_NEAR && view_bit(views[pe].near, j) &&
                             view_bit(views[p].near, self));
        native = both && (j == self || (view_bit(views[pe].atomics, j) && view_bit(views[p].atomics, self)));
        CHECK(peers[p].same_node && peers[p].near == both && peers[p].mapped == both && peers[p].atomics == native,
              "PE %d for PE %d: near %d, should be %d; atomics %d, %d", p, pe, peers[p].near, both, peers[p].atomics,
              native);
    }
}

/* Slots ascend from 0 without a gap over the mapped PEs; range or table give each near PE its slot, others none. */
static void check_place(int n, int hide_all_but)
{
    uint8_t slots[MAX_PES];
    int first, count, next = 0;
    bool regular;

    for (int p = 0; hide_all_but >= 0 && p < n; p++)
        peers[p].near = p == hide_all_but;
    regular = tern_peers_place(peers, n, &first, &count, slots);
    for (int p = 0; p < n; p++) {
        bool in_range = p >= first && p < first + count;

        CHECK(peers[p].slot == (peers[p].mapped ? next : (int)TERN_SLOT_NONE), "PE %d has slot %d", p, peers[p].slot);
        next += peers[p].mapped;
        CHECK(slots[p] == (peers[p].near ? peers[p].slot : TERN_SLOT_NONE), "the table gives PE %d slot %d", p,
              slots[p]);
        if (regular)
            CHECK(in_range == peers[p].near && (!in_range || peers[p].slot - peers[first].slot == p - first),
                  "PE %d: range %d + %d, near %d, slot %d", p, first, count, peers[p].near, peers[p].slot);
    }
    if (!regular) { /* is there really no range? */
        int low = -1, high = -1, near = 0;

        for (int p = 0; p < n; p++)
            if (peers[p].near) {
                low = low < 0 ? p : low;
                high = p;
                near++;
            }
        CHECK(high - low + 1 != near, "a range was not seen");
    }
}

int main(void)
{
    uint64_t seed = test_seed();
    int node_pes[MAX_PES], regular = 0;

    for (int i = 0; i < 600 && !test_failures; i++) {
        int n = i % 50 == 49 ? MAX_PES : 1 + (int)(test_random(&seed) % 12);
        int count = random_node(n, node_pes, &seed, 50 + (int)(test_random(&seed) % 51)), self;

        if (i % 4 == 0) { /* the usual: all on one node, all see all */
            count = n;
            for (int p = 0; p < n; p++) {
                node_pes[p] = p;
                memset(views[p].near, 0xff, sizeof(views[p].near));
                memset(views[p].atomics, i % 8 ? 0xff : 0, sizeof(views[p].atomics));
            }
        }
        self = (int)(test_random(&seed) % (uint64_t)count);
        check_meeting(n, node_pes, count, self);
        if (count <= TERN_MAX_NEAR) {
            uint8_t slots[MAX_PES];
            int first, near;

            regular += tern_peers_place(peers, n, &first, &near, slots);
            check_place(n, -1);
            check_place(n, node_pes[self]);
        }
    }
    CHECK(regular > 100 && regular < 500, "%d of 600 placements were regular: the test is one-sided", regular);
    return test_end("peers_unit");
}
