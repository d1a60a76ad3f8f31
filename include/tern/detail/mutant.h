/*
 * tern/detail/mutant.h - choice of the mutant of order.h at run time, in test builds of the CPU device only. The name is
 * read before main, once for each source file; an unknown one ends the program, as the run would show nothing.
 */
#ifndef TERN_DETAIL_MUTANT_H
#define TERN_DETAIL_MUTANT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int tern_order_mutant_find(void)
{
    static const char *const names[] = {"",
#define TERN_ORDER_NAME(name, kind, why) #name,
                                        TERN_ORDER_TABLE(TERN_ORDER_NAME)
#undef TERN_ORDER_NAME
    };
    const char *wanted = getenv("TERN_CPU_MUTANT");
    if (!wanted || !*wanted)
        return TERN_ORD_none;
    for (int i = 1; i < TERN_ORD_COUNT; i++)
        if (!strcmp(names[i], wanted))
            return i;
    fprintf(stderr, "TERN_CPU_MUTANT=%s: no such ordering operation in order.h; one of:", wanted);
    for (int i = 1; i < TERN_ORD_COUNT; i++)
        fprintf(stderr, " %s", names[i]);
    fputc('\n', stderr);
    abort();
}

static const int tern_order_mutant = tern_order_mutant_find();

#endif
