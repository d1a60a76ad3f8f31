/* verbs_lib.c - loads libibverbs when it is first needed. */
#include "proxy/verbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

struct verbs_lib verbs;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char failure[256];

/* Never unloaded: drivers register themselves in it. */
static void load(void)
{
    void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        snprintf(failure, sizeof failure, "libibverbs.so.1 cannot be loaded: %s", dlerror());
        return;
    }
#define VERBS_FIND(name)                                                                                               \
    verbs.name = (__typeof__(name) *)dlsym(lib, #name);                                                                \
    if (!verbs.name)                                                                                                   \
        snprintf(failure, sizeof failure, "libibverbs.so.1 lacks %s: it is too old", #name);
    VERBS_TABLE(VERBS_FIND)
#undef VERBS_FIND
}

const char *verbs_load(void)
{
    pthread_once(&once, load);
    return failure[0] ? failure : NULL;
}
