/* host.c - a C program of a user: builds against the installed headers and library, starts and ends the runtime. */
#include <stdio.h>
#include <string.h>
#include <tern/tern.h>

int main(void)
{
    tern_status_t status;
    void *memory;

    if (tern_version() != TERN_VERSION_MAJOR * 10000 + TERN_VERSION_MINOR * 100 + TERN_VERSION_PATCH) {
        fprintf(stderr, "library %d is not the one of the headers\n", tern_version());
        return 1;
    }
    status = tern_init();
    if (status == TERN_ERR_NO_DEVICE) {
        printf("skipped: no GPU: %s\n", tern_last_error());
        return 77;
    }
    if (status != TERN_OK) {
        fprintf(stderr, "%s\n", tern_last_error());
        return 1;
    }
    memory = tern_malloc(1000);
    if (!memory || tern_free(memory) != TERN_OK || tern_finalize() != TERN_OK) {
        fprintf(stderr, "%s\n", tern_last_error());
        return 1;
    }
    printf("%s: ok\n", tern_device_name());
    return 0;
}
