/* tern/detail/wait.h - waits and tests on words of the own symmetric memory: poll with acquire, and look around (look.h). */
#ifndef TERN_DETAIL_WAIT_H
#define TERN_DETAIL_WAIT_H

#include <tern/detail/look.h>
#include <tern/detail/rma.h>

/* ---- comparisons ------------------------------------------------------------------------------------------------------- */

/* Words of all types compare as unsigned 64-bit keys. */
TERN_DEV uint64_t tern_key(uint64_t word, unsigned size, bool is_signed)
{
    if (size == 4)
        return is_signed ? (uint32_t)word ^ 0x80000000u : (uint32_t)word;
    return is_signed ? word ^ 1ull << 63 : word;
}

TERN_DEV bool tern_cmp(uint64_t key, int cmp, uint64_t value)
{
    switch (cmp) {
    case TERN_CMP_EQ:
        return key == value;
    case TERN_CMP_NE:
        return key != value;
    case TERN_CMP_GT:
        return key > value;
    case TERN_CMP_LE:
        return key <= value;
    case TERN_CMP_LT:
        return key < value;
    default:
        return key >= value;
    }
}

/* What a wait is for: `count` words of one type in local symmetric memory, some perhaps masked out. */
typedef struct tern_until {
    const char *words;
    size_t count;
    const int *mask; /* word i does not take part where mask[i] is not 0; NULL: all do */
    unsigned size;
    bool is_signed;
    int cmp;
    uint64_t key;
} tern_until_t;

TERN_DEV bool tern_until_met(tern_until_t u, size_t i)
{
    const char *p = u.words + i * u.size;
    uint64_t word = u.size == 4 ? tern_order_wait_acquire32((const uint32_t *)p)
                                : tern_order_wait_acquire((const uint64_t *)p);
    return tern_cmp(tern_key(word, u.size, u.is_signed), u.cmp, u.key);
}

TERN_DEV bool tern_until_masked(tern_until_t u, size_t i)
{
    return u.mask && u.mask[i];
}

TERN_DEV bool tern_until_check(tern_ctx_t ctx, uint32_t call, tern_until_t u)
{
    return tern_check(ctx, call, u.size, u.words, u.count * u.size, ctx.my_pe) &&
           tern_check_op(ctx, call, u.cmp, TERN_CMP_GE, u.words);
}

/* The first word that meets the comparison, or SIZE_MAX; *any: does any word take part? */
TERN_DEV size_t tern_until_first(tern_until_t u, bool *any)
{
    *any = false;
    for (size_t i = 0; i < u.count; i++) {
        if (tern_until_masked(u, i))
            continue;
        *any = true;
        if (tern_until_met(u, i))
            return i;
    }
    return SIZE_MAX;
}

/* All words, from *at on; *at is the first that does not meet it. */
TERN_DEV bool tern_until_rest(tern_until_t u, size_t *at)
{
    while (*at < u.count && (tern_until_masked(u, *at) || tern_until_met(u, *at)))
        ++*at;
    return *at == u.count;
}

/* Indices of all words that meet it now; *any as above. */
TERN_DEV size_t tern_until_collect(tern_until_t u, size_t *indices, bool *any)
{
    size_t found = 0;
    *any = false;
    for (size_t i = 0; i < u.count; i++) {
        if (tern_until_masked(u, i))
            continue;
        *any = true;
        if (tern_until_met(u, i))
            indices[found++] = i;
    }
    return found;
}

TERN_DEV tern_status_t tern_until_wait(tern_ctx_t ctx, uint32_t call, tern_until_t u)
{
    if (!tern_until_check(ctx, call, u))
        return TERN_ERR_INVALID;
    tern_wait_t w = {0, 0, 0};
    tern_status_t status = TERN_OK;
    while (!tern_until_met(u, 0) && status == TERN_OK)
        status = tern_wait_turn(ctx, &w);
    return status;
}

TERN_DEV_SLOW tern_status_t tern_until_wait_any(tern_ctx_t ctx, tern_until_t u, size_t *index)
{
    *index = SIZE_MAX;
    if (!tern_until_check(ctx, TERN_CALL_wait_until, u))
        return TERN_ERR_INVALID;
    tern_wait_t w = {0, 0, 0};
    tern_status_t status = TERN_OK;
    bool any = true;
    while ((*index = tern_until_first(u, &any)) == SIZE_MAX && any && status == TERN_OK)
        status = tern_wait_turn(ctx, &w);
    return status;
}

TERN_DEV_SLOW tern_status_t tern_until_wait_all(tern_ctx_t ctx, tern_until_t u)
{
    if (!tern_until_check(ctx, TERN_CALL_wait_until, u))
        return TERN_ERR_INVALID;
    tern_wait_t w = {0, 0, 0};
    tern_status_t status = TERN_OK;
    size_t at = 0;
    while (!tern_until_rest(u, &at) && status == TERN_OK)
        status = tern_wait_turn(ctx, &w);
    return status;
}

TERN_DEV_SLOW tern_status_t tern_until_wait_some(tern_ctx_t ctx, tern_until_t u, size_t *indices, size_t *found)
{
    *found = 0;
    if (!tern_until_check(ctx, TERN_CALL_wait_until, u))
        return TERN_ERR_INVALID;
    tern_wait_t w = {0, 0, 0};
    tern_status_t status = TERN_OK;
    bool any = true;
    while ((*found = tern_until_collect(u, indices, &any)) == 0 && any && status == TERN_OK)
        status = tern_wait_turn(ctx, &w);
    return status;
}

/* ---- the calls --------------------------------------------------------------------------------------------------------- */

TERN_DEV tern_until_t tern_until_signal(const uint64_t *sig, int cmp, uint64_t val)
{
    return {(const char *)sig, 1, NULL, 8, false, cmp, val};
}

TERN_DEV tern_status_t tern_signal_wait_scope(tern_ctx_t ctx, int scope, uint64_t *sig, int cmp, uint64_t val)
{
    tern_status_t status = TERN_OK;
    if (tern_scope_rank(scope) == 0)
        status = tern_until_wait(ctx, TERN_CALL_signal_wait_until, tern_until_signal(sig, cmp, val));
    return tern_order_wait_join(scope, status);
}

TERN_DEV tern_status_t tern_signal_wait_until(tern_ctx_t ctx, uint64_t *sig, int cmp, uint64_t val)
{
    return tern_until_wait(ctx, TERN_CALL_signal_wait_until, tern_until_signal(sig, cmp, val));
}

TERN_DEV tern_status_t tern_signal_wait_until_warp(tern_ctx_t ctx, uint64_t *sig, int cmp, uint64_t val)
{
    return tern_signal_wait_scope(ctx, TERN_SCOPE_WARP, sig, cmp, val);
}

TERN_DEV tern_status_t tern_signal_wait_until_block(tern_ctx_t ctx, uint64_t *sig, int cmp, uint64_t val)
{
    return tern_signal_wait_scope(ctx, TERN_SCOPE_BLOCK, sig, cmp, val);
}

TERN_DEV tern_status_t tern_ctx_status(tern_ctx_t ctx)
{
    return tern_wait_look(ctx.state, 0, 0);
}

#define TERN_WAIT_BODIES(name, T)                                                                                      \
    TERN_DEV tern_until_t tern_##name##_until(const T *words, size_t count, const int *mask, int cmp, T value)         \
    {                                                                                                                  \
        bool is_signed = (T)-1 < (T)1;                                                                                 \
        return {(const char *)words, count, mask, sizeof(T), is_signed, cmp,                                           \
                tern_key((uint64_t)value, sizeof(T), is_signed)};                                                      \
    }                                                                                                                  \
    TERN_DEV tern_status_t tern_##name##_wait_until(tern_ctx_t ctx, T *word, int cmp, T value)                         \
    {                                                                                                                  \
        return tern_until_wait(ctx, TERN_CALL_wait_until, tern_##name##_until(word, 1, NULL, cmp, value));             \
    }                                                                                                                  \
    TERN_DEV tern_status_t tern_##name##_wait_until_any(tern_ctx_t ctx, T *words, size_t count, const int *mask,       \
                                                        int cmp, T value, size_t *index)                               \
    {                                                                                                                  \
        return tern_until_wait_any(ctx, tern_##name##_until(words, count, mask, cmp, value), index);                   \
    }                                                                                                                  \
    TERN_DEV tern_status_t tern_##name##_wait_until_all(tern_ctx_t ctx, T *words, size_t count, const int *mask,       \
                                                        int cmp, T value)                                              \
    {                                                                                                                  \
        return tern_until_wait_all(ctx, tern_##name##_until(words, count, mask, cmp, value));                          \
    }                                                                                                                  \
    TERN_DEV tern_status_t tern_##name##_wait_until_some(tern_ctx_t ctx, T *words, size_t count, size_t *indices,      \
                                                         const int *mask, int cmp, T value, size_t *found)             \
    {                                                                                                                  \
        return tern_until_wait_some(ctx, tern_##name##_until(words, count, mask, cmp, value), indices, found);         \
    }                                                                                                                  \
    TERN_DEV int tern_##name##_test(tern_ctx_t ctx, T *word, int cmp, T value)                                         \
    {                                                                                                                  \
        tern_until_t u = tern_##name##_until(word, 1, NULL, cmp, value);                                               \
        return tern_until_check(ctx, TERN_CALL_test, u) && tern_until_met(u, 0);                                       \
    }                                                                                                                  \
    TERN_DEV size_t tern_##name##_test_any(tern_ctx_t ctx, T *words, size_t count, const int *mask, int cmp, T value)  \
    {                                                                                                                  \
        tern_until_t u = tern_##name##_until(words, count, mask, cmp, value);                                          \
        bool any;                                                                                                      \
        return tern_until_check(ctx, TERN_CALL_test, u) ? tern_until_first(u, &any) : SIZE_MAX;                        \
    }                                                                                                                  \
    TERN_DEV int tern_##name##_test_all(tern_ctx_t ctx, T *words, size_t count, const int *mask, int cmp, T value)     \
    {                                                                                                                  \
        tern_until_t u = tern_##name##_until(words, count, mask, cmp, value);                                          \
        size_t at = 0;                                                                                                 \
        return tern_until_check(ctx, TERN_CALL_test, u) && tern_until_rest(u, &at);                                    \
    }                                                                                                                  \
    TERN_DEV size_t tern_##name##_test_some(tern_ctx_t ctx, T *words, size_t count, size_t *indices, const int *mask,  \
                                            int cmp, T value)                                                          \
    {                                                                                                                  \
        tern_until_t u = tern_##name##_until(words, count, mask, cmp, value);                                          \
        bool any;                                                                                                      \
        return tern_until_check(ctx, TERN_CALL_test, u) ? tern_until_collect(u, indices, &any) : 0;                    \
    }
TERN_INT_TYPES(TERN_WAIT_BODIES)
#undef TERN_WAIT_BODIES

#endif
