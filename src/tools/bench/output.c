/* output.c - how tern-bench shows results: a table, JSON lines, and plots drawn by gnuplot. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "bench.h"

/* ---- table -------------------------------------------------------------------------------------------------------------------- */

/* `between`: what separates the test from the conditions. */
static void print_title(FILE *to, const struct bench_options *o, const struct bench_place *place, const char *between)
{
    fprintf(to, "tern-bench %s: %s%s", bench_test_name[o->test], bench_test_text[o->test], between);
    fprintf(to, "%d PE%s, %s, %s, scope %s, %d x %d threads", place->pes, place->pes == 1 ? "" : "s", place->machine,
            place->path, bench_scope_name[o->scope], o->blocks, o->threads);
    if (o->test == BENCH_P || o->test == BENCH_G || o->test == BENCH_ATOMIC)
        fprintf(to, ", %s", bench_type_name[o->type]);
    if (o->test == BENCH_ATOMIC)
        fprintf(to, " %s", bench_op_name[o->op]);
    if (o->stage)
        fprintf(to, ", stage %u", o->stage);
    if (o->released)
        fprintf(to, ", released");
}

void bench_print_head(const struct bench_options *o, const struct bench_place *place)
{
    if (o->json)
        return;
    print_title(stdout, o, place, "\n");
    printf("\n%s%12s %12s %12s %10s %12s %8s%s  %s\n",
           strcmp(tern_device_name(), "cpu") == 0 ? "(CPU device: these are figures of CPUs, not of a GPU)\n" : "", "bytes",
           "us median", "us p99", "GB/s", "us floor", "ratio", o->check ? "   wrong" : "", "floor");
    fflush(stdout);
}

static void print_row(const struct bench_options *o, const struct bench_result *r)
{
    printf("%12llu %12.3f %12.3f ", (unsigned long long)r->bytes, r->us_median, r->us_p99);
    if (r->gbps > 0)
        printf("%10.3f ", r->gbps);
    else
        printf("%10s ", "-");
    if (r->floor)
        printf("%12.3f %8.3f", r->floor_us, r->us_median / r->floor_us);
    else
        printf("%12s %8s", "-", "-");
    if (o->check)
        printf("%8lld", (long long)r->wrong);
    printf("  %s\n", r->floor ? r->floor : "none");
}

/* ---- JSON -------------------------------------------------------------------------------------------------------------------------- */

static void print_json_string(const char *name, const char *text)
{
    printf("\"%s\":\"", name);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        if ((unsigned char)*text < 0x20)
            printf("\\u%04x", *text);
        else
            putchar(*text);
    }
    printf("\",");
}

static void print_json(const struct bench_options *o, const struct bench_place *place, const struct bench_result *r)
{
    char date[32];
    time_t now = time(NULL);
    struct tm tm;
    int version = tern_version();

    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    putchar('{');
    print_json_string("test", bench_test_name[o->test]);
    print_json_string("device", tern_device_name());
    print_json_string("path", place->path);
    printf("\"pes\":%d,\"scope\":\"%s\",\"ctas\":%d,\"threads\":%d,\"bytes\":%llu,", place->pes, bench_scope_name[o->scope],
           o->blocks, o->threads, (unsigned long long)r->bytes);
    printf("\"us_min\":%.4f,\"us_median\":%.4f,\"us_p99\":%.4f,\"gbps\":%.4f,", r->us_min, r->us_median, r->us_p99, r->gbps);
    if (r->floor) {
        printf("\"floor_us\":%.4f,", r->floor_us);
        print_json_string("floor", r->floor);
        printf("\"ratio\":%.4f,", r->us_median / r->floor_us);
    } else {
        printf("\"floor_us\":null,\"floor\":null,\"ratio\":null,");
    }
    if (r->wrong >= 0)
        printf("\"wrong\":%lld,", (long long)r->wrong);
    else
        printf("\"wrong\":null,");
    printf("\"version\":\"%d.%d.%d\",", version / 10000, version / 100 % 100, version % 100);
    print_json_string("type", bench_type_name[o->type]);
    print_json_string("op", o->test == BENCH_ATOMIC ? bench_op_name[o->op] : "");
    print_json_string("machine", place->machine);
    print_json_string("command", o->command);
    printf("\"stage\":%u,\"released\":%s,\"iters\":%ld,\"samples\":%ld,\"sharers\":%d,\"date\":\"%s\"}\n", o->stage,
           o->released ? "true" : "false", r->rounds, o->samples, place->sharers, date);
}

void bench_print(const struct bench_options *o, const struct bench_place *place, const struct bench_result *r)
{
    if (o->json)
        print_json(o, place, r);
    else
        print_row(o, r);
    fflush(stdout);
}

/* ---- plot ------------------------------------------------------------------------------------------------------------------------------ */

static const char *plot_terminal(const char *file)
{
    const char *end = strrchr(file, '.');

    if (end && strcmp(end, ".svg") == 0)
        return "svg size 900,600 dynamic background rgb 'white'";
    if (end && strcmp(end, ".png") == 0)
        return "pngcairo size 900,600";
    if (end && strcmp(end, ".pdf") == 0)
        return "pdfcairo size 18cm,12cm";
    return NULL;
}

bool bench_plot_possible(const struct bench_options *o)
{
    FILE *file;

    if (!plot_terminal(o->plot) || strpbrk(o->plot, "'\"\\\n")) {
        fprintf(stderr, "tern-bench: --plot '%s': a name that ends in .svg, .png or .pdf is needed, without quotes\n", o->plot);
        return false;
    }
    if (system("gnuplot --version >/dev/null 2>&1") != 0) {
        fprintf(stderr, "tern-bench: --plot needs gnuplot (Debian, Ubuntu: gnuplot-nox), which is not here; --json has the "
                        "same figures for other programs\n");
        return false;
    }
    file = fopen(o->plot, "w");
    if (!file) {
        fprintf(stderr, "tern-bench: cannot write '%s': %s\n", o->plot, strerror(errno));
        return false;
    }
    fclose(file);
    return true;
}

static void plot_data(FILE *to, const struct bench_result *r, int count, bool floor)
{
    for (int i = 0; i < count; i++) {
        if (floor && !r[i].floor)
            continue;
        double x = r[i].bytes ? (double)r[i].bytes : 1;
        fprintf(to, "%g %g %g %g\n", x, floor ? r[i].floor_us : r[i].us_median, r[i].us_min, r[i].us_p99);
    }
    fputs("e\n", to);
}

bool bench_plot(const struct bench_options *o, const struct bench_place *place, const struct bench_result *r, int count)
{
    bool floor = false;
    FILE *to = popen("gnuplot", "w");

    if (!to) {
        fprintf(stderr, "tern-bench: cannot start gnuplot: %s\n", strerror(errno));
        return false;
    }
    for (int i = 0; i < count; i++)
        floor |= r[i].floor != NULL;
    fprintf(to, "set terminal %s\nset output '%s'\nset title \"", plot_terminal(o->plot), o->plot);
    print_title(to, o, place, "\\n");
    fprintf(to, "\" noenhanced font ',9'\nset logscale xy\nset xlabel 'bytes'\nset ylabel 'microseconds'\nset key left top\n"
                "set grid\nplot '-' using 1:2:3:4 with yerrorlines title 'Tern (median; minimum to 99th percentile)'%s\n",
            floor ? ", '-' using 1:2 with linespoints title 'floor (median)'" : "");
    plot_data(to, r, count, false);
    if (floor)
        plot_data(to, r, count, true);
    int status = pclose(to);
    if (status != 0)
        fprintf(stderr, "tern-bench: gnuplot failed (status %d)\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return status == 0;
}
