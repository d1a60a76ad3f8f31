/* check.h - what plain C test programs share: CHECK prints file, line and message and counts; test_end() is main's result. */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEST_SKIP 77 /* exit status that the runner counts as a skip */

static int test_failures;

#define CHECK(cond, ...)                                                                                               \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            test_failures++;                                                                                           \
            fprintf(stderr, "%s:%d: CHECK(%s) failed: ", __FILE__, __LINE__, #cond);                                   \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
        }                                                                                                              \
    } while (0)

/* Ends the program at once: for what the rest of the test cannot do without. */
#define REQUIRE(cond, ...)                                                                                             \
    do {                                                                                                               \
        CHECK(cond, __VA_ARGS__);                                                                                      \
        if (test_failures)                                                                                             \
            exit(1);                                                                                                   \
    } while (0)

/* Seed of this run: TEST_SEED, else the clock; printed so that a failure can be repeated. */
static inline uint64_t test_seed(void)
{
    const char *text = getenv("TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) * 2654435761u % 1000000007u;
    printf("seed %llu (TEST_SEED)\n", (unsigned long long)seed);
    return seed;
}

/* xorshift64*: the tests' random numbers. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t x = *state ? *state : 88172645463325252u;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 2685821657736338717u;
}

static inline int test_end(const char *name)
{
    printf("%s: %s\n", name, test_failures ? "FAILED" : "ok");
    return test_failures ? 1 : 0;
}

#endif
