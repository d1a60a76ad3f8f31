/* alloc_unit.c - the heap's allocator against a plain model (who owns each unit) on random traces. One process. */
#include "host/alloc.h"

#include "../common/check.h"

#define UNIT 256u
#define MAX_UNITS 4096u
#define MAX_LIVE 512

struct model {
    uint16_t owner[MAX_UNITS]; /* 0: free, else allocation + 1 */
    uint32_t units;
    struct {
        uint64_t offset, units;
    } live[MAX_LIVE];
    int n_live;
};

static uint32_t model_fit(const struct model *m, uint64_t align_units, uint64_t units)
{
    for (uint32_t at = 0; at + units <= m->units; at += align_units) {
        uint32_t k = 0;

        while (k < units && !m->owner[at + k])
            k++;
        if (k == units)
            return at;
    }
    return UINT32_MAX;
}

static void model_set(struct model *m, uint64_t offset, uint64_t units, uint16_t owner)
{
    for (uint64_t u = offset / UNIT; u < offset / UNIT + units; u++) {
        CHECK((owner == 0) != (m->owner[u] == 0), "unit %llu is %u, becomes %u", (unsigned long long)u, m->owner[u],
              owner);
        m->owner[u] = owner;
    }
}

static void check_stats(const struct model *m, const struct tern_alloc *a)
{
    struct tern_alloc_stats s;
    uint64_t used = 0, run = 0, largest = 0;

    for (uint32_t u = 0; u < m->units; u++) {
        run = m->owner[u] ? 0 : run + 1;
        used += m->owner[u] != 0;
        largest = run > largest ? run : largest;
    }
    tern_alloc_get_stats(a, &s);
    CHECK(s.bytes == (uint64_t)m->units * UNIT && s.used == used * UNIT && s.live == (uint64_t)m->n_live,
          "bytes %llu used %llu live %llu", (unsigned long long)s.bytes, (unsigned long long)s.used,
          (unsigned long long)s.live);
    CHECK(s.largest == largest * UNIT, "largest %llu, model %llu", (unsigned long long)s.largest,
          (unsigned long long)largest * UNIT);
}

static void step_take(struct model *m, struct tern_alloc *const a[2], uint64_t *seed)
{
    uint64_t align = (uint64_t)1 << test_random(seed) % 14, bytes, got[2] = {1, 1}, align_units;
    bool ok[2];
    uint32_t fit;

    bytes = 1 + test_random(seed) % ((uint64_t)1 << (4 + test_random(seed) % 14));
    if (m->n_live == MAX_LIVE)
        return;
    align_units = align < UNIT ? 1 : align / UNIT;
    fit = model_fit(m, align_units, (bytes + UNIT - 1) / UNIT);
    CHECK((tern_alloc_shortfall(a[0], align, bytes) == 0) == (fit != UINT32_MAX), "shortfall and model disagree");
    for (int i = 0; i < 2; i++) {
        REQUIRE(tern_alloc_prepare(a[i]), "host memory");
        ok[i] = tern_alloc_take(a[i], align, bytes, &got[i]);
    }
    CHECK(ok[0] == ok[1] && got[0] == got[1], "two instances differ: %llu %llu", (unsigned long long)got[0],
          (unsigned long long)got[1]);
    CHECK(ok[0] == (fit != UINT32_MAX), "take of %llu at %llu: %d, model %u", (unsigned long long)bytes,
          (unsigned long long)align, ok[0], fit);
    if (!ok[0])
        return;
    CHECK(got[0] % align == 0 && got[0] % UNIT == 0, "offset %llu is not aligned to %llu", (unsigned long long)got[0],
          (unsigned long long)align);
    if (align_units == 1)
        CHECK(got[0] == (uint64_t)fit * UNIT, "not the first fit: %llu, model %u", (unsigned long long)got[0], fit);
    REQUIRE(got[0] + bytes <= (uint64_t)m->units * UNIT, "beyond the end");
    m->live[m->n_live].offset = got[0];
    m->live[m->n_live].units = (bytes + UNIT - 1) / UNIT;
    model_set(m, got[0], m->live[m->n_live].units, (uint16_t)(m->n_live + 1));
    CHECK(tern_alloc_size(a[0], got[0]) == m->live[m->n_live].units * UNIT, "size");
    m->n_live++;
}

static void step_give(struct model *m, struct tern_alloc *const a[2], uint64_t *seed)
{
    int i, last = m->n_live - 1;
    uint64_t offset, units;

    if (!m->n_live)
        return;
    i = (int)(test_random(seed) % (uint64_t)m->n_live);
    offset = m->live[i].offset, units = m->live[i].units;
    if (units > 1)
        CHECK(!tern_alloc_give(a[0], offset + UNIT) && !tern_alloc_size(a[0], offset + UNIT),
              "gave the inside of a block");
    CHECK(tern_alloc_give(a[0], offset) && tern_alloc_give(a[1], offset), "give of %llu", (unsigned long long)offset);
    CHECK(!tern_alloc_give(a[0], offset), "gave %llu twice", (unsigned long long)offset);
    model_set(m, offset, units, 0);
    if (i != last) {
        m->live[i] = m->live[last];
        for (uint64_t u = m->live[i].offset / UNIT; u < m->live[i].offset / UNIT + m->live[i].units; u++)
            m->owner[u] = (uint16_t)(i + 1);
    }
    m->n_live--;
}

static void step_grow(struct model *m, struct tern_alloc *const a[2], uint64_t *seed)
{
    uint64_t units = 1 + test_random(seed) % 200;

    if (m->units + units > MAX_UNITS)
        return;
    for (int i = 0; i < 2; i++) {
        REQUIRE(tern_alloc_prepare(a[i]), "host memory");
        tern_alloc_grow(a[i], units * UNIT);
    }
    m->units += (uint32_t)units;
}

static void random_traces(uint64_t seed)
{
    static struct model m;

    for (int trace = 0; trace < 200; trace++) {
        struct tern_alloc *a[2] = {tern_alloc_new(UNIT), tern_alloc_new(UNIT)};
        struct tern_alloc_stats s;
        int give = 20 + (int)(test_random(&seed) % 40);

        REQUIRE(a[0] && a[1], "host memory");
        memset(&m, 0, sizeof(m));
        for (int i = 0; i < 2000 && !test_failures; i++) {
            int dice = (int)(test_random(&seed) % 100);

            if (dice < 2)
                step_grow(&m, a, &seed);
            else if (dice < 2 + give)
                step_give(&m, a, &seed);
            else
                step_take(&m, a, &seed);
            if (i % 16 == 0)
                check_stats(&m, a[0]);
        }
        while (m.n_live && !test_failures)
            step_give(&m, a, &seed);
        check_stats(&m, a[0]);
        tern_alloc_get_stats(a[0], &s);
        CHECK(s.blocks == (m.units != 0), "free blocks did not join: %llu", (unsigned long long)s.blocks);
        tern_alloc_delete(a[0]);
        tern_alloc_delete(a[1]);
    }
}

/* The shortfall is what is missing, to the unit. */
static void shortfall_exact(uint64_t seed)
{
    for (int i = 0; i < 3000 && !test_failures; i++) {
        struct tern_alloc *a = tern_alloc_new(UNIT);
        uint64_t align = (uint64_t)UNIT << test_random(&seed) % 8, bytes = 1 + test_random(&seed) % 100000;
        uint64_t held = test_random(&seed) % 40 * UNIT, spare = test_random(&seed) % 40 * UNIT, need, offset;

        REQUIRE(a, "host memory");
        tern_alloc_grow(a, held + spare);
        if (held)
            CHECK(tern_alloc_take(a, UNIT, held, &offset) && offset == 0, "first block");
        need = tern_alloc_shortfall(a, align, bytes);
        REQUIRE(tern_alloc_prepare(a), "host memory");
        if (need) {
            CHECK(!tern_alloc_take(a, align, bytes, &offset), "fits without the shortfall");
            tern_alloc_grow(a, need - UNIT);
            CHECK(!tern_alloc_take(a, align, bytes, &offset), "fits with less than the shortfall");
            CHECK(tern_alloc_shortfall(a, align, bytes) == UNIT, "shortfall is not what is missing");
            REQUIRE(tern_alloc_prepare(a), "host memory");
            tern_alloc_grow(a, UNIT);
        }
        CHECK(tern_alloc_take(a, align, bytes, &offset) && offset % align == 0, "does not fit with the shortfall");
        tern_alloc_delete(a);
    }
}

static void edges(void)
{
    struct tern_alloc *a = tern_alloc_new(UNIT);
    uint64_t offset;

    REQUIRE(a, "host memory");
    CHECK(tern_alloc_shortfall(a, UNIT, 1) == UNIT, "an empty space lacks one unit");
    CHECK(tern_alloc_shortfall(a, UNIT, UINT64_MAX) == UINT64_MAX, "no space is that large");
    CHECK(tern_alloc_shortfall(a, (uint64_t)1 << 63, 1) == UINT64_MAX, "no alignment is that large");
    CHECK(!tern_alloc_take(a, UNIT, 1, &offset) && !tern_alloc_take(a, UNIT, UINT64_MAX - 3, &offset), "empty space");
    CHECK(!tern_alloc_give(a, 0) && !tern_alloc_give(a, UINT64_MAX), "nothing to give");
    tern_alloc_delete(a);
}

int main(void)
{
    uint64_t seed = test_seed();

    edges();
    shortfall_exact(seed);
    random_traces(seed);
    return test_end("alloc_unit");
}
