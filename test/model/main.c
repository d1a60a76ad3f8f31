/* main.c - command line of the model checker. The last line tells `N passed, N failed`. */
#include "../common/check.h"
#include "model.h"

#include <errno.h>

static const char usage[] = "Usage: protocol [-a] [-v] [-n STATES] [-l] [-F COUNT] [-m MUTATION] [-b] [TEXT]\n"
                            "Explores the cases whose names contain TEXT (all), big ones only with -b.\n"
                            "  -l           list cases and mutations\n"
                            "  -v           print the trace of each violation, of expected ones too\n"
                            "  -a           follow all steps, without reduction\n"
                            "  -n STATES    cut a case there: it fails (20000000)\n"
                            "  -F COUNT     instead: random programs, by TEST_SEED\n"
                            "  -m MUTATION  with this mutation (with -F: which random programs show it?)\n"
                            "With TEST_SOAK set: one of all cases by TEST_SEED, then 300 random programs.\n";

struct options {
    struct explore_options explore;
    enum mutation mutation;
    const char *text;
    unsigned fuzz;
    bool big, list;
};

static enum mutation mutation_by_name(const char *name)
{
    for (int m = 0; m < MUTATIONS_COUNT; m++)
        if (!strcmp(mutation_names[m], name))
            return (enum mutation)m;
    fprintf(stderr, "protocol: there is no mutation '%s'; see -l\n", name);
    exit(2);
}

static unsigned long number(const char *text)
{
    char *end;
    errno = 0;
    unsigned long n = text ? strtoul(text, &end, 10) : 0;
    if (!text || end == text || *end || errno) {
        fprintf(stderr, "protocol: '%s' is no number\n%s", text ? text : "", usage);
        exit(2);
    }
    return n;
}

static struct options parse(char **argv)
{
    struct options o = {.explore.most_states = 20000000, .text = ""};
    for (char **arg = argv + 1; *arg; arg++) {
        if (!strcmp(*arg, "-a")) {
            o.explore.all_steps = true;
        } else if (!strcmp(*arg, "-v")) {
            o.explore.traces = true;
        } else if (!strcmp(*arg, "-b")) {
            o.big = true;
        } else if (!strcmp(*arg, "-l")) {
            o.list = true;
        } else if (!strcmp(*arg, "-n")) {
            o.explore.most_states = number(*++arg);
        } else if (!strcmp(*arg, "-F")) {
            o.fuzz = (unsigned)number(*++arg);
        } else if (!strcmp(*arg, "-m") && arg[1]) {
            o.mutation = mutation_by_name(*++arg);
        } else if (**arg == '-') {
            fputs(usage, stderr);
            exit(2);
        } else {
            o.text = *arg;
        }
    }
    return o;
}

static void list(void)
{
    for (size_t i = 0; i < cases_count; i++)
        printf("%s%s\n", cases[i].name, cases[i].big ? " (big)" : "");
    puts("\nmutations:");
    for (int m = 1; m < MUTATIONS_COUNT; m++)
        printf("%-28s %s\n", mutation_names[m], mutation_texts[m]);
}

/* A mutation without a case would be a rule that nothing tests. */
static int mutations_without_case(void)
{
    int missing = 0;
    for (int m = 1; m < MUTATIONS_COUNT; m++) {
        size_t i = 0;
        while (i < cases_count && cases[i].mutation != (enum mutation)m)
            i++;
        if (i == cases_count) {
            printf("mutation %s has no case\n", mutation_names[m]);
            missing++;
        }
    }
    return missing;
}

struct sum {
    int passed, failed;
    size_t states;
};

static void run_case(const struct options *o, const struct config *given, struct sum *sum)
{
    struct config c = *given;
    if (o->mutation != MUTATION_none)
        c.mutation = o->mutation;
    for (int n = 0; n < NETS; n++) {
        if (!has(c.nets ? c.nets : ALL_NETS, (unsigned)n))
            continue;
        struct exploration e = explore(&c, (enum net)n, &o->explore);
        if (e.as_expected)
            sum->passed++;
        else
            sum->failed++;
        sum->states += e.states;
    }
}

static void run_fuzz(const struct options *o, uint64_t seed, struct sum *sum)
{
    struct fuzz_result r = fuzz(o->fuzz, seed, o->mutation);
    printf("random programs: %u hold, %u cut, %u do not fit, %u violated\n", r.held, r.cut, r.too_big, r.failed);
    sum->passed += (int)(r.held + r.cut);
    sum->failed += (int)r.failed;
    sum->states += r.states;
}

int main(int argc, char **argv)
{
    (void)argc;
    struct options o = parse(argv);
    struct sum sum = {0};
    if (o.list) {
        list();
        return 0;
    }
    if (getenv("TEST_SOAK") || o.fuzz) {
        uint64_t seed = test_seed();
        if (!o.fuzz) {
            o.fuzz = 300;
            run_case(&o, &cases[seed % cases_count], &sum);
        }
        run_fuzz(&o, seed, &sum);
    } else {
        for (size_t i = 0; i < cases_count; i++)
            if (strstr(cases[i].name, o.text) && (o.big || !cases[i].big))
                run_case(&o, &cases[i], &sum);
        sum.failed += mutations_without_case();
    }
    printf("%zu states\n%d passed, %d failed\n", sum.states, sum.passed, sum.failed);
    return sum.failed || !sum.passed;
}
