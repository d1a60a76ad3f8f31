/*
 * alloc.c - the allocator of the symmetric heap (alloc.h). All blocks, free and used, are nodes of one treap ordered by
 * offset, in which every node knows the largest free block below it: first fit, release and coalescing take O(log n).
 * Priorities are a hash of the offset, so the tree is the same on every PE, though the offsets would not depend on it.
 */
#include "host/alloc.h"

#include <stdlib.h>
#include <string.h>

#define NIL 0u /* index of no node; nodes[0] has size and best 0 */

struct node {
    uint64_t offset, size;
    uint64_t best;        /* largest free block in this subtree */
    uint32_t left, right; /* children; `left` also links unused nodes */
    uint32_t prev, next;  /* neighbours by offset */
    uint32_t priority;
    bool free;
};

struct tern_alloc {
    struct node *nodes;
    uint32_t capacity;         /* of `nodes` */
    uint32_t unused, n_unused; /* nodes that hold no block */
    uint32_t root, last;       /* last: block at the end of the space */
    uint64_t unit;
    struct tern_alloc_stats stats;
};

/* take splits off a front and a tail, grow adds one */
#define NODES_PER_CALL 3u

struct tern_alloc *tern_alloc_new(uint64_t unit)
{
    struct tern_alloc *a = calloc(1, sizeof(*a));

    if (!a)
        return NULL;
    a->unit = unit;
    if (!tern_alloc_prepare(a)) {
        free(a);
        return NULL;
    }
    return a;
}

void tern_alloc_delete(struct tern_alloc *a)
{
    if (!a)
        return;
    free(a->nodes);
    free(a);
}

bool tern_alloc_prepare(struct tern_alloc *a)
{
    uint32_t capacity = a->capacity ? a->capacity * 2 : 64;
    uint32_t first = a->capacity ? a->capacity : 1;
    struct node *nodes;

    if (a->n_unused >= NODES_PER_CALL)
        return true;
    if (capacity <= a->capacity || !(nodes = realloc(a->nodes, capacity * sizeof(*nodes))))
        return false;
    if (!a->capacity)
        memset(&nodes[NIL], 0, sizeof(nodes[NIL]));
    for (uint32_t i = first; i < capacity; i++) {
        nodes[i].left = a->unused;
        a->unused = i;
    }
    a->n_unused += capacity - first;
    a->nodes = nodes;
    a->capacity = capacity;
    return true;
}

static uint32_t node_new(struct tern_alloc *a, uint64_t offset, uint64_t size, bool free_block)
{
    uint32_t i = a->unused;
    struct node *n = &a->nodes[i];
    uint64_t hash = (offset / a->unit + 1) * 0x9e3779b97f4a7c15u;

    a->unused = n->left;
    a->n_unused--;
    *n = (struct node){.offset = offset, .size = size, .free = free_block, .priority = (uint32_t)(hash >> 32)};
    a->stats.blocks++;
    return i;
}

static void node_delete(struct tern_alloc *a, uint32_t i)
{
    a->nodes[i].left = a->unused;
    a->unused = i;
    a->n_unused++;
    a->stats.blocks--;
}

static uint64_t max3(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t m = a > b ? a : b;

    return m > c ? m : c;
}

static void update(struct node *nodes, uint32_t i)
{
    struct node *n = &nodes[i];

    n->best = max3(n->free ? n->size : 0, nodes[n->left].best, nodes[n->right].best);
}

/* All of `l` lies before all of `r`. */
static uint32_t merge(struct node *nodes, uint32_t l, uint32_t r)
{
    if (!l || !r)
        return l ? l : r;
    if (nodes[l].priority >= nodes[r].priority) {
        nodes[l].right = merge(nodes, nodes[l].right, r);
        update(nodes, l);
        return l;
    }
    nodes[r].left = merge(nodes, l, nodes[r].left);
    update(nodes, r);
    return r;
}

/* Cut `t` into what lies before `offset` and the rest. */
static void split(struct node *nodes, uint32_t t, uint64_t offset, uint32_t *l, uint32_t *r)
{
    if (!t) {
        *l = *r = NIL;
    } else if (nodes[t].offset < offset) {
        uint32_t rest;

        split(nodes, nodes[t].right, offset, &rest, r);
        nodes[t].right = rest;
        *l = t;
        update(nodes, t);
    } else {
        uint32_t rest;

        split(nodes, nodes[t].left, offset, l, &rest);
        nodes[t].left = rest;
        *r = t;
        update(nodes, t);
    }
}

/* Put node `i` into the tree and, behind `after`, into the list. */
static void insert(struct tern_alloc *a, uint32_t i, uint32_t after)
{
    struct node *nodes = a->nodes, *n = &nodes[i];
    uint32_t l, r;

    update(nodes, i);
    split(nodes, a->root, n->offset, &l, &r);
    a->root = merge(nodes, merge(nodes, l, i), r);
    n->prev = after;
    n->next = after ? nodes[after].next : NIL;
    if (after)
        nodes[after].next = i;
    if (n->next)
        nodes[n->next].prev = i;
    else
        a->last = i;
}

static void removal(struct tern_alloc *a, uint32_t i)
{
    struct node *nodes = a->nodes, *n = &nodes[i];
    uint32_t *link = &a->root;

    while (*link != i)
        link = n->offset < nodes[*link].offset ? &nodes[*link].left : &nodes[*link].right;
    *link = merge(nodes, n->left, n->right);
    if (n->prev)
        nodes[n->prev].next = n->next;
    if (n->next)
        nodes[n->next].prev = n->prev;
    else
        a->last = n->prev;
    node_delete(a, i);
}

/* Bring `best` up to date on the way from `t` to `offset`, whose block has changed (or gone). */
static void refresh(struct node *nodes, uint32_t t, uint64_t offset)
{
    if (!t)
        return;
    if (offset != nodes[t].offset)
        refresh(nodes, offset < nodes[t].offset ? nodes[t].left : nodes[t].right, offset);
    update(nodes, t);
}

static uint32_t find(const struct tern_alloc *a, uint64_t offset)
{
    uint32_t t = a->root;

    while (t && a->nodes[t].offset != offset)
        t = offset < a->nodes[t].offset ? a->nodes[t].left : a->nodes[t].right;
    return t;
}

/* Lowest free block of at least `size` bytes. */
static uint32_t first_fit(const struct node *nodes, uint32_t t, uint64_t size)
{
    if (nodes[t].best < size)
        return NIL;
    for (;;) {
        if (nodes[nodes[t].left].best >= size)
            t = nodes[t].left;
        else if (nodes[t].free && nodes[t].size >= size)
            return t;
        else
            t = nodes[t].right;
    }
}

static uint64_t align_up(uint64_t x, uint64_t alignment)
{
    return (x + alignment - 1) & ~(alignment - 1);
}

static bool fits(const struct node *n, uint64_t alignment, uint64_t size)
{
    uint64_t at = align_up(n->offset, alignment);

    return n->free && at >= n->offset && at - n->offset <= n->size && n->size - (at - n->offset) >= size;
}

/* Lowest free block with `size` bytes from an aligned offset on: looks at every block large enough. */
static uint32_t aligned_fit(const struct node *nodes, uint32_t t, uint64_t alignment, uint64_t size)
{
    uint32_t found;

    if (nodes[t].best < size)
        return NIL;
    found = aligned_fit(nodes, nodes[t].left, alignment, size);
    if (found)
        return found;
    return fits(&nodes[t], alignment, size) ? t : aligned_fit(nodes, nodes[t].right, alignment, size);
}

/* Round to the unit; false: no space is that large. */
static bool normalize(const struct tern_alloc *a, uint64_t *alignment, uint64_t *bytes)
{
    if (*alignment < a->unit)
        *alignment = a->unit;
    if (*bytes > UINT64_MAX / 4 || *alignment > UINT64_MAX / 4)
        return false;
    *bytes = align_up(*bytes, a->unit);
    return true;
}

static uint32_t search(const struct tern_alloc *a, uint64_t alignment, uint64_t bytes)
{
    uint32_t t = first_fit(a->nodes, a->root, bytes + alignment - a->unit);

    return t || alignment == a->unit ? t : aligned_fit(a->nodes, a->root, alignment, bytes);
}

uint64_t tern_alloc_shortfall(const struct tern_alloc *a, uint64_t alignment, uint64_t bytes)
{
    const struct node *last = &a->nodes[a->last];

    if (!normalize(a, &alignment, &bytes))
        return UINT64_MAX;
    if (search(a, alignment, bytes))
        return 0;
    return align_up(last->free ? last->offset : a->stats.bytes, alignment) + bytes - a->stats.bytes;
}

void tern_alloc_grow(struct tern_alloc *a, uint64_t bytes)
{
    struct node *last = &a->nodes[a->last];

    if (!bytes)
        return;
    if (last->free) {
        last->size += bytes;
        refresh(a->nodes, a->root, last->offset);
    } else {
        insert(a, node_new(a, a->stats.bytes, bytes, true), a->last);
    }
    a->stats.bytes += bytes;
}

bool tern_alloc_take(struct tern_alloc *a, uint64_t alignment, uint64_t bytes, uint64_t *offset)
{
    struct node *nodes = a->nodes;
    uint64_t at, tail;
    uint32_t t;

    if (!normalize(a, &alignment, &bytes) || !(t = search(a, alignment, bytes)))
        return false;
    at = align_up(nodes[t].offset, alignment);
    tail = nodes[t].offset + nodes[t].size - (at + bytes);
    if (at > nodes[t].offset) {
        nodes[t].size = at - nodes[t].offset;
        refresh(nodes, a->root, nodes[t].offset);
        insert(a, node_new(a, at, bytes, false), t);
        t = nodes[t].next;
    } else {
        nodes[t].size = bytes;
        nodes[t].free = false;
        refresh(nodes, a->root, at);
    }
    if (tail)
        insert(a, node_new(a, at + bytes, tail, true), t);
    a->stats.used += bytes;
    a->stats.live++;
    *offset = at;
    return true;
}

bool tern_alloc_give(struct tern_alloc *a, uint64_t offset)
{
    struct node *nodes = a->nodes;
    uint32_t t = find(a, offset), other;

    if (!t || nodes[t].free)
        return false;
    a->stats.used -= nodes[t].size;
    a->stats.live--;
    nodes[t].free = true;
    other = nodes[t].next;
    if (nodes[other].free) {
        nodes[t].size += nodes[other].size;
        offset = nodes[other].offset;
        removal(a, other);
        refresh(nodes, a->root, offset);
    }
    other = nodes[t].prev;
    if (nodes[other].free) {
        nodes[other].size += nodes[t].size;
        offset = nodes[t].offset;
        removal(a, t);
        refresh(nodes, a->root, offset);
        t = other;
    }
    refresh(nodes, a->root, nodes[t].offset);
    return true;
}

uint64_t tern_alloc_size(const struct tern_alloc *a, uint64_t offset)
{
    uint32_t t = find(a, offset);

    return a->nodes[t].free ? 0 : a->nodes[t].size;
}

void tern_alloc_get_stats(const struct tern_alloc *a, struct tern_alloc_stats *stats)
{
    *stats = a->stats;
    stats->largest = a->nodes[a->root].best;
}
