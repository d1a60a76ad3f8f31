/* sysfs.h - unpacks a description of a part of /sys (test/fixtures/sysfs) into files: lines "path = text" and "path ->
 * link". */
#ifndef TEST_COMMON_SYSFS_H
#define TEST_COMMON_SYSFS_H

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/check.h"

static inline void sysfs_folders(char *path)
{
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path, 0755);
        *p = '/';
    }
}

/* Into the folder `root`, which it makes below the test's temporary one. */
static inline void sysfs_unpack(const char *name, char *root, size_t bytes)
{
    char path[512], line[512], *text;
    FILE *in, *out;

    snprintf(path, sizeof path, "%s/test/fixtures/sysfs/%s.txt", getenv("TEST_SOURCE_ROOT"), name);
    in = fopen(path, "r");
    REQUIRE(in, "%s", path);
    snprintf(root, bytes, "%s/sysfs-%s", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", name);
    mkdir(root, 0755);
    while (fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#')
            continue;
        text = strstr(line, " -> ");
        if (!text)
            text = strstr(line, " = ");
        REQUIRE(text, "%s: '%s'", path, line);
        bool link = text[1] == '-';
        *text = '\0';
        char file[1100];
        snprintf(file, sizeof file, "%s/%s", root, line);
        sysfs_folders(file);
        if (link) {
            REQUIRE(symlink(text + 4, file) == 0 || access(file, F_OK) == 0, "%s", file);
            continue;
        }
        out = fopen(file, "w");
        REQUIRE(out, "%s", file);
        fprintf(out, "%s\n", text + 3);
        fclose(out);
    }
    fclose(in);
}

#endif
