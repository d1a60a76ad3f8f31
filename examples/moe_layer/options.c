/* options.c - the command line of moe_layer. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe.h"

static const char usage[] =
    "usage: moe_layer [options]\n"
    "\n"
    "The forward pass of one Mixture-of-Experts layer on a text, its experts spread over all PEs: tokens are sent to the\n"
    "PEs of their experts and the results are sent back from inside kernels, by put-with-signal. The result is checked\n"
    "against a reference on the host. Start it with a launcher, e.g. mpirun -n 4 moe_layer; without one it is one PE.\n"
    "\n"
    "  --text FILE...      the text (default: README.md in the program's folder or one above it)\n"
    "  --tokens N          tokens of the text in all, 1 to 1048576; a shorter text starts again (default 512)\n"
    "  --hidden N          values of a token, a multiple of 8, 8 to 4096 (default 256)\n"
    "  --experts N         experts in all, 1 to 4096 (default 16)\n"
    "  --topk N            experts of a token, 1 to 16, at most --experts (default 2)\n"
    "  --dtype fp32|bf16   type of tokens, weights and results (default fp32)\n"
    "  --iters N           timed forward passes, behind one that is not, 1 to 100000 (default 5)\n"
    "  --seed N            of all random weights (default 1)\n"
    "  --timeout MS        bound of each wait for another PE, 1 to 3600000 (default 20000)\n"
    "  --inject drop|flip  lose one row, or turn one bit of it: the run must then fail\n"
    "  --json              print one JSON object instead of the table\n"
    "  --help              this text\n"
    "\n"
    "Exit status: 0 after OK, 1 if a check or the run failed, 2 for bad options or an unreadable text.\n";

static bool parse_number(const char *name, const char *text, long low, long high, long *value)
{
    char *end;
    errno = 0;
    *value = strtol(text, &end, 10);
    if (errno || end == text || *end || *value < low || *value > high) {
        fprintf(stderr, "moe_layer: --%s '%s': a number from %ld to %ld is needed\n", name, text, low, high);
        return false;
    }
    return true;
}

static bool parse_choice(const char *name, const char *text, const char *first, const char *second, int *value)
{
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0) {
        fprintf(stderr, "moe_layer: --%s '%s': %s or %s is needed\n", name, text, first, second);
        return false;
    }
    *value = strcmp(text, second) == 0;
    return true;
}

static bool parse_seed(const char *text, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 0);
    if (errno || end == text || *end || text[0] == '-') {
        fprintf(stderr, "moe_layer: --seed '%s': a number from 0 to 18446744073709551615 is needed\n", text);
        return false;
    }
    return true;
}

static bool parse_option(struct moe_options *o, int c)
{
    int choice;

    switch (c) {
    case 'x':
        o->files[o->file_count++] = optarg;
        return true;
    case 't':
        return parse_number("tokens", optarg, 1, 1 << 20, &o->tokens);
    case 'd':
        if (!parse_number("hidden", optarg, 8, MOE_MAX_HIDDEN, &o->hidden))
            return false;
        if (o->hidden % 8)
            fprintf(stderr, "moe_layer: --hidden %ld: a multiple of 8 is needed\n", o->hidden);
        return o->hidden % 8 == 0;
    case 'e':
        return parse_number("experts", optarg, 1, MOE_MAX_EXPERTS, &o->experts);
    case 'k':
        return parse_number("topk", optarg, 1, MOE_MAX_TOPK, &o->topk);
    case 'y':
        return parse_choice("dtype", optarg, "fp32", "bf16", &o->dtype);
    case 'i':
        return parse_number("iters", optarg, 1, 100000, &o->iters);
    case 's':
        return parse_seed(optarg, &o->seed);
    case 'm':
        return parse_number("timeout", optarg, 1, 3600000, &o->timeout_ms);
    case 'f':
        if (!parse_choice("inject", optarg, "drop", "flip", &choice))
            return false;
        o->fault = choice ? MOE_FAULT_FLIP : MOE_FAULT_DROP;
        return true;
    case 'j':
        return o->json = true;
    default:
        fprintf(stderr, "moe_layer: --help lists the options\n");
        return false;
    }
}

int moe_options_parse(struct moe_options *o, int argc, char **argv)
{
    static const struct option names[] = {
        {"text", required_argument, NULL, 'x'},    {"tokens", required_argument, NULL, 't'},
        {"hidden", required_argument, NULL, 'd'},  {"experts", required_argument, NULL, 'e'},
        {"topk", required_argument, NULL, 'k'},    {"dtype", required_argument, NULL, 'y'},
        {"iters", required_argument, NULL, 'i'},   {"seed", required_argument, NULL, 's'},
        {"timeout", required_argument, NULL, 'm'}, {"inject", required_argument, NULL, 'f'},
        {"json", no_argument, NULL, 'j'},          {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int c;

    *o = (struct moe_options){.tokens = 512, .hidden = 256, .experts = 16, .topk = 2, .iters = 5, .seed = 1, .timeout_ms = 20000};
    o->files = calloc((size_t)argc, sizeof *o->files);
    if (!o->files) {
        fputs("moe_layer: no memory\n", stderr);
        return 1;
    }
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (c == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (!parse_option(o, c))
            return 2;
    }
    if (optind < argc && o->file_count == 0) {
        fprintf(stderr, "moe_layer: '%s': files follow --text; --help lists the options\n", argv[optind]);
        return 2;
    }
    while (optind < argc)
        o->files[o->file_count++] = argv[optind++];
    if (o->topk > o->experts) {
        fprintf(stderr, "moe_layer: --topk %ld is more than --experts %ld\n", o->topk, o->experts);
        return 2;
    }
    return -1;
}
