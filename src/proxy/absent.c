/* absent.c - transports that this build lacks: tables without functions, which say why. */
#include "proxy/proxy.h"

#ifndef TERN_HAVE_UCX
static bool ucx_reaches(struct tern_rt *rt, int pe, const char **why)
{
    (void)rt;
    (void)pe;
    *why = "this build has no UCX (meson: -Ducx)";
    return false;
}
const struct tern_transport tern_transport_ucx = {.name = "ucx", .reaches = ucx_reaches};
#endif

#ifndef TERN_HAVE_VERBS
static bool verbs_reaches(struct tern_rt *rt, int pe, const char **why)
{
    (void)rt;
    (void)pe;
    *why = "this build has no verbs (meson: -Dverbs)";
    return false;
}
const struct tern_transport tern_transport_verbs = {.name = "verbs", .reaches = verbs_reaches};
#endif
