/* text.c - reads the text and cuts it into tokens. A token is a run of letters and digits (UTF-8 bytes count as letters), at
 * most 12 bytes of it, or any other single byte but white space; it is represented by a hash of its bytes. */
#include <ctype.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "moe.h"

#define TOKEN_BYTES 12

static bool is_letter(int c)
{
    return isalnum(c) || c >= 0x80 || c == '_';
}

static bool append(struct moe_text *text, size_t *room, uint64_t word)
{
    if (text->count == *room) {
        size_t more = *room ? 2 * *room : 4096;
        uint64_t *words = realloc(text->words, more * sizeof *words);
        if (!words)
            return false;
        text->words = words;
        *room = more;
    }
    text->words[text->count++] = word;
    return true;
}

static bool cut(struct moe_text *text, size_t *room, FILE *file)
{
    uint64_t hash = 0;
    int bytes = 0, c;

    do {
        c = getc(file);
        bool letter = c != EOF && is_letter(c);
        if (bytes && (!letter || bytes == TOKEN_BYTES)) {
            if (!append(text, room, hash))
                return false;
            bytes = 0;
        }
        if (letter) {
            hash = moe_mix((bytes ? hash : 0) ^ (uint64_t)c);
            bytes++;
        } else if (c != EOF && !isspace(c) && !append(text, room, moe_mix(0x100u + (uint64_t)c))) {
            return false;
        }
    } while (c != EOF);
    return true;
}

static bool read_file(struct moe_text *text, size_t *room, const char *name)
{
    FILE *file = fopen(name, "r");
    if (!file) {
        fprintf(stderr, "moe_layer: cannot read the text '%s': %s\n", name, strerror(errno));
        return false;
    }
    errno = 0;
    bool fits = cut(text, room, file);
    bool read = !ferror(file);
    if (!fits)
        fprintf(stderr, "moe_layer: no memory for the text '%s'\n", name);
    else if (!read)
        fprintf(stderr, "moe_layer: cannot read the text '%s': %s\n", name, strerror(errno));
    fclose(file);
    return fits && read;
}

/* README.md in the folder of the program or one above it: programs are built inside the project's tree. */
static bool find_readme(char *path, size_t bytes)
{
    char folder[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length < 0)
        return false;
    folder[length] = '\0';
    for (char *up = dirname(folder); strcmp(up, "/") != 0; up = dirname(up)) {
        int n = snprintf(path, bytes, "%s/README.md", up);
        if (n > 0 && (size_t)n < bytes && access(path, R_OK) == 0)
            return true;
    }
    return false;
}

bool moe_text_read(struct moe_text *text, char *const *files, int count)
{
    char readme[PATH_MAX], *only = readme;
    size_t room = 0;

    memset(text, 0, sizeof *text);
    if (count == 0) {
        if (!find_readme(readme, sizeof readme)) {
            fprintf(stderr, "moe_layer: no README.md in the program's folder or one above it; name a text with --text FILE\n");
            return false;
        }
        files = &only;
        count = 1;
    }
    snprintf(text->name, sizeof text->name, "%.200s%s", strrchr(files[0], '/') ? strrchr(files[0], '/') + 1 : files[0],
             count > 1 ? " and more" : "");
    for (int i = 0; i < count; i++) {
        if (!read_file(text, &room, files[i])) {
            moe_text_free(text);
            return false;
        }
    }
    if (text->count == 0) {
        fprintf(stderr, "moe_layer: the text '%s' has no words\n", files[0]);
        moe_text_free(text);
        return false;
    }
    return true;
}

void moe_text_free(struct moe_text *text)
{
    free(text->words);
    text->words = NULL;
    text->count = 0;
}
