/* ucx_lib.c - loads libucp when it is first needed. */
#include "proxy/ucx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

struct ucx_lib ucx;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char failure[256];

static void *lib_open(const char *name)
{
    void *lib = NULL;
#ifdef TERN_UCX_DIR
    char path[512];
    snprintf(path, sizeof path, "%s/%s", TERN_UCX_DIR, name);
    lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
#endif
    return lib ? lib : dlopen(name, RTLD_NOW | RTLD_GLOBAL);
}

/* Never unloaded: its threads and hooks would outlive its code. */
static void load(void)
{
    void *ucs = lib_open("libucs.so.0"), *ucp = ucs ? lib_open("libucp.so.0") : NULL;
    if (!ucp) {
        snprintf(failure, sizeof failure, "libucp.so.0 cannot be loaded: %s", dlerror());
        return;
    }
#define UCX_FIND(name)                                                                                                 \
    ucx.name = (__typeof__(name) *)dlsym(ucp, #name);                                                                  \
    if (!ucx.name)                                                                                                     \
        ucx.name = (__typeof__(name) *)dlsym(ucs, #name);                                                              \
    if (!ucx.name)                                                                                                     \
        snprintf(failure, sizeof failure, "libucp.so.0 lacks %s: it is too old", #name);
    UCX_TABLE(UCX_FIND)
#undef UCX_FIND
}

const char *ucx_load(void)
{
    pthread_once(&once, load);
    return failure[0] ? failure : NULL;
}
