/* tern-info.c - the command `tern-info`: tells what Tern finds and chooses here, and why. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/tern.h>

static const char help_text[] =
    "NAME\n"
    "    tern-info - tell what Tern finds and chooses here, and why\n"
    "\n"
    "SYNOPSIS\n"
    "    tern-info [--json]\n"
    "    tern-info --env [--json | --markdown]\n"
    "    mpirun -n 4 tern-info          srun --mpi=pmix -N 2 -n 16 tern-info\n"
    "\n"
    "DESCRIPTION\n"
    "    Starts the runtime as a program would and prints, from PE 0: version and device of the library, how the PEs met,\n"
    "    the device of PE 0, the path from PE 0 to each PE and the reason for it, the heap, and the TERN_* variables in\n"
    "    effect. Started without a launcher it is a job of one PE. Start it the way a slow or failing job is started: same\n"
    "    launcher, same options, same environment.\n"
    "\n"
    "OPTIONS\n"
    "    --env        print the table of TERN_* variables instead: name, type, default, value in effect, meaning. Does not\n"
    "                 start the runtime.\n"
    "    --json       print one JSON object\n"
    "    --markdown   with --env: print a Markdown table of defaults (the one in the README)\n"
    "    --version    print the version and the device that the library was built for\n"
    "    --help       print this text\n"
    "\n"
    "EXIT STATUS\n"
    "    0    printed\n"
    "    1    the runtime did not start; the reason and what to do about it are on standard error\n"
    "    2    wrong usage\n"
    "\n"
    "ENVIRONMENT\n"
    "    All TERN_* variables act as in any program; tern-info --env lists them. TERN_LOG=info adds the runtime's own account\n"
    "    of its start, on standard error.\n"
    "\n"
    "EXAMPLES\n"
    "    tern-info --env | grep HEAP           variables about the heap, with the values in effect\n"
    "    mpirun -n 2 tern-info --json          for programs\n"
    "    TERN_DISABLE_P2P=1 mpirun -n 2 tern-info     what would change\n";

enum { FORMAT_TEXT, FORMAT_JSON, FORMAT_MARKDOWN };

static size_t describe_env(char *buf, size_t bytes, int format)
{
    return tern_describe_env(buf, bytes, format);
}

static size_t describe_job(char *buf, size_t bytes, int format)
{
    return tern_describe(buf, bytes, format == FORMAT_JSON);
}

/* Print what `describe` writes, of whatever length. */
static int print_description(size_t (*describe)(char *, size_t, int), int format)
{
    size_t bytes = describe(NULL, 0, format) + 1;
    char *text = malloc(bytes);

    if (!text) {
        fprintf(stderr, "tern-info: no memory for %zu bytes\n", bytes);
        return 1;
    }
    describe(text, bytes, format);
    fputs(text, stdout);
    if (*text && text[strlen(text) - 1] != '\n')
        putchar('\n');
    free(text);
    if (fflush(stdout) != 0) {
        perror("tern-info: cannot write");
        return 1;
    }
    return 0;
}

static int print_job(int format)
{
    int result = 0;

    if (tern_init() != TERN_OK) {
        fprintf(stderr, "tern-info: %s\n", tern_last_error());
        return 1;
    }
    if (tern_my_pe() == 0)
        result = print_description(describe_job, format);
    if (tern_finalize() != TERN_OK) {
        fprintf(stderr, "tern-info: %s\n", tern_last_error());
        result = 1;
    }
    return result;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"env", no_argument, NULL, 'e'},     {"json", no_argument, NULL, 'j'}, {"markdown", no_argument, NULL, 'm'},
        {"version", no_argument, NULL, 'v'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int option, env = 0, format = FORMAT_TEXT, version = tern_version();

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'e':
            env = 1;
            break;
        case 'j':
            format = FORMAT_JSON;
            break;
        case 'm':
            format = FORMAT_MARKDOWN;
            break;
        case 'v':
            printf("tern %d.%d.%d, %s device\n", version / 10000, version / 100 % 100, version % 100, tern_device_name());
            return 0;
        case 'h':
            fputs(help_text, stdout);
            return 0;
        default:
            fputs("tern-info: see tern-info --help\n", stderr);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "tern-info: unknown argument '%s'; see tern-info --help\n", argv[optind]);
        return 2;
    }
    if (format == FORMAT_MARKDOWN && !env) {
        fputs("tern-info: --markdown goes with --env\n", stderr);
        return 2;
    }
    return env ? print_description(describe_env, format) : print_job(format);
}
