/* describe.c - tern_describe and tern_describe_env: what was found and chosen, and the variables, as text, JSON,
 * Markdown. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/rt.h"
#include "proxy/proxy.h"

/* Text that is counted in full and kept as far as there is room. */
struct text {
    char *buf;
    size_t bytes, used;
};

static void add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct text *t, const char *format, ...)
{
    va_list args;
    size_t room = t->used < t->bytes ? t->bytes - t->used : 0;
    va_start(args, format);
    int n = vsnprintf(room ? t->buf + t->used : NULL, room, format, args);
    va_end(args);
    if (n > 0)
        t->used += (size_t)n;
}

/* A JSON string with its quotes. */
static void add_json(struct text *t, const char *string)
{
    add(t, "\"");
    for (const unsigned char *p = (const unsigned char *)string; *p; p++) {
        if (*p == '"' || *p == '\\')
            add(t, "\\%c", *p);
        else if (*p < 0x20)
            add(t, "\\u%04x", *p);
        else
            add(t, "%c", *p);
    }
    add(t, "\"");
}

static void json_string(struct text *t, const char *key, const char *value, const char *after)
{
    add(t, "\"%s\":", key);
    add_json(t, value);
    add(t, "%s", after);
}

/* ---- variables --------------------------------------------------------------------------------------------------- */

static const char *const kind_names[] = {"bool", "int", "int", "size", "enum", "string"};

static void env_text(struct text *t, const struct tern_env *env)
{
    add(t, "%-22s %-6s %-10s %-10s %s\n", "variable", "type", "default", "value", "meaning");
    for (int i = 0; i < tern_env_count; i++) {
        const struct tern_env_entry *e = &tern_env_entries[i];
        char value[4096], allowed[512];
        tern_env_text(env, e, value, sizeof value);
        tern_env_allowed(e, allowed, sizeof allowed);
        add(t, "%-22s %-6s %-10s %-10s %s", e->name, kind_names[e->kind], *e->def ? e->def : "-", *value ? value : "-",
            e->meaning);
        if (e->kind == TERN_ENV_enum)
            add(t, " (%s)", allowed);
        add(t, "%s\n", e->equal ? " [equal on all PEs]" : "");
    }
}

static void env_json(struct text *t, const struct tern_env *env)
{
    add(t, "{\"variables\":[");
    for (int i = 0; i < tern_env_count; i++) {
        const struct tern_env_entry *e = &tern_env_entries[i];
        char value[4096], allowed[512];
        tern_env_text(env, e, value, sizeof value);
        tern_env_allowed(e, allowed, sizeof allowed);
        add(t, "%s{", i ? "," : "");
        json_string(t, "name", e->name, ",");
        json_string(t, "type", kind_names[e->kind], ",");
        json_string(t, "default", e->def, ",");
        json_string(t, "value", value, ",");
        json_string(t, "allowed", allowed, ",");
        add(t, "\"equal\":%s,", e->equal ? "true" : "false");
        json_string(t, "meaning", e->meaning, "}");
    }
    add(t, "]}");
}

/* A cell of a Markdown table: '|' would end it. */
static void add_cell(struct text *t, const char *string)
{
    for (; *string; string++)
        add(t, *string == '|' ? "\\%c" : "%c", *string);
}

static void env_markdown(struct text *t)
{
    add(t, "| variable | type | default | allowed | meaning |\n|---|---|---|---|---|\n");
    for (int i = 0; i < tern_env_count; i++) {
        const struct tern_env_entry *e = &tern_env_entries[i];
        char allowed[512];
        tern_env_allowed(e, allowed, sizeof allowed);
        add(t, "| `%s` | %s | %s%s%s | ", e->name, kind_names[e->kind], *e->def ? "`" : "", *e->def ? e->def : "empty",
            *e->def ? "`" : "");
        add_cell(t, allowed);
        add(t, " | ");
        add_cell(t, e->meaning);
        add(t, "%s |\n", e->equal ? "; equal on all PEs" : "");
    }
}

size_t tern_describe_env(char *buf, size_t bytes, int format)
{
    struct text t = {buf, bytes, 0};
    struct tern_rt *rt = tern_rt_current;
    struct tern_env own, *env = &own;
    if (rt)
        env = &rt->env;
    else
        tern_env_load(&own);
    if (bytes)
        buf[0] = '\0';
    if (format == 2)
        env_markdown(&t);
    else if (format == 1)
        env_json(&t, env);
    else
        env_text(&t, env);
    if (!rt)
        tern_env_unload(&own);
    return t.used;
}

/* ---- the runtime ------------------------------------------------------------------------------------------------- */

static const char *peer_path(const struct tern_rt *rt, int pe)
{
    if (pe == rt->pe)
        return "self";
    if (rt->peers[pe].near)
        return rt->peers[pe].atomics ? "load/store, native atomics" : "load/store";
    return "proxy";
}

/* What carries operations to a far PE, and why; "" for near ones. */
static const char *peer_transport(struct tern_rt *rt, int pe, const char **why)
{
    const char *name = NULL;

    *why = NULL;
    if (!rt->peers[pe].near && rt->proxy)
        name = tern_proxy_transport(rt, pe, why);
    if (!*why)
        *why = "";
    return name ? name : "";
}

static const char *atomics_home(const struct tern_rt *rt)
{
    if (!rt->amo_direct)
        return "proxy";
    for (int pe = 0; pe < rt->n_pes; pe++) {
        if (!rt->peers[pe].near)
            return "mixed";
    }
    return "direct";
}

static const char *atomics_text(const struct tern_rt *rt)
{
    switch (*atomics_home(rt)) {
    case 'd':
        return "in GPU memory, by load/store";
    case 'm':
        return "load/store peers: in GPU memory; others: by the proxy of the PE that owns the word";
    default:
        return "by the proxy of the PE that owns the word";
    }
}

static const char *peer_state(struct tern_rt *rt, int pe)
{
    return tern_control_dead(rt, pe) ? "dead" : "alive";
}

static void rt_text(struct text *t, struct tern_rt *rt)
{
    tern_info_t info;
    char device[512] = "";
    int changed = 0;

    tern_info_fill(rt, &info);
    tern_device_describe(rt, device, sizeof device);
    add(t, "version      %d.%d.%d (ABI %u), %s device\n", TERN_VERSION_MAJOR, TERN_VERSION_MINOR, TERN_VERSION_PATCH,
        TERN_ABI_VERSION, tern_device_name());
    add(t, "launch       %s: PE %d of %d, %d of %d on node %s, process %d\n", rt->bootstrap->name, rt->pe, rt->n_pes,
        rt->node_pe, rt->node_n_pes, rt->blob.host, (int)rt->blob.pid);
    if (*tern_abort_reason())
        add(t, "aborted      %s\n", tern_abort_reason());
    add(t, "device       %d: %s, %d multiprocessors, %" PRIu64 " MiB, shared by %d PEs\n", info.gpu, info.device,
        info.sms, rt->device_id.memory >> 20, info.sharers);
    if (*device)
        add(t, "             %s\n", device);
    add(t,
        "heap         %" PRIu64 " bytes backed, %" PRIu64 " used, limit %" PRIu64 "; the runtime itself uses %" PRIu64
        " bytes of the "
        "device\n",
        info.heap_bytes, info.heap_used, info.heap_max, info.runtime_bytes);
    add(t, "atomics      %s (%s)\n", atomics_text(rt), rt->amo_why);
    add(t, "peers        %d of %d by load/store\n", info.near_pes, rt->n_pes);
    for (int pe = 0; pe < rt->n_pes; pe++) {
        const char *why, *transport = peer_transport(rt, pe, &why);
        add(t, "  PE %-6d %s (%s)", pe, peer_path(rt, pe), tern_peer_why(rt, pe));
        if (*transport)
            add(t, " by %s%s%s%s", transport, *why ? " (" : "", why, *why ? ")" : "");
        add(t, "%s\n", tern_control_dead(rt, pe) ? ", dead" : "");
    }
    add(t, "variables    ");
    for (int i = 0; i < tern_env_count; i++) {
        char value[4096];
        if (tern_env_is_default(&rt->env, &tern_env_entries[i]))
            continue;
        tern_env_text(&rt->env, &tern_env_entries[i], value, sizeof value);
        add(t, "%s%s=%s", changed++ ? " " : "", tern_env_entries[i].name, value);
    }
    add(t, "%s\n", changed ? "" : "all at their defaults");
}

static void rt_json(struct text *t, struct tern_rt *rt)
{
    tern_info_t info;
    char device[512] = "";
    bool first = true;

    tern_info_fill(rt, &info);
    tern_device_describe(rt, device, sizeof device);
    add(t, "{\"version\":\"%d.%d.%d\",\"abi\":%u,", TERN_VERSION_MAJOR, TERN_VERSION_MINOR, TERN_VERSION_PATCH,
        TERN_ABI_VERSION);
    json_string(t, "build", tern_device_name(), ",");
    json_string(t, "bootstrap", rt->bootstrap->name, ",");
    add(t, "\"pe\":%d,\"n_pes\":%d,\"node_pe\":%d,\"node_n_pes\":%d,\"pid\":%d,", rt->pe, rt->n_pes, rt->node_pe,
        rt->node_n_pes, (int)rt->blob.pid);
    json_string(t, "host", rt->blob.host, ",");
    json_string(t, "abort_reason", tern_abort_reason(), ",");
    add(t, "\"device\":{\"ordinal\":%d,", info.gpu);
    json_string(t, "name", info.device, ",");
    json_string(t, "details", device, ",");
    add(t, "\"sms\":%d,\"bytes\":%" PRIu64 ",\"sharers\":%d},", info.sms, rt->device_id.memory, info.sharers);
    add(t, "\"heap\":{\"bytes\":%" PRIu64 ",\"used\":%" PRIu64 ",\"max\":%" PRIu64 ",\"runtime_bytes\":%" PRIu64 "},",
        info.heap_bytes, info.heap_used, info.heap_max, info.runtime_bytes);
    json_string(t, "atomics", atomics_home(rt), ",");
    json_string(t, "atomics_why", rt->amo_why, ",");
    add(t, "\"near_pes\":%d,\"peers\":[", info.near_pes);
    for (int pe = 0; pe < rt->n_pes; pe++) {
        const char *why, *transport = peer_transport(rt, pe, &why);
        add(t, "%s{\"pe\":%d,", pe ? "," : "", pe);
        json_string(t, "path", peer_path(rt, pe), ",");
        json_string(t, "why", tern_peer_why(rt, pe), ",");
        json_string(t, "transport", transport, ",");
        json_string(t, "transport_why", why, ",");
        json_string(t, "state", peer_state(rt, pe), "}");
    }
    add(t, "],\"variables\":{");
    for (int i = 0; i < tern_env_count; i++) {
        char value[4096];
        if (tern_env_is_default(&rt->env, &tern_env_entries[i]))
            continue;
        tern_env_text(&rt->env, &tern_env_entries[i], value, sizeof value);
        add(t, "%s", first ? "" : ",");
        json_string(t, tern_env_entries[i].name, value, "");
        first = false;
    }
    add(t, "}}");
}

size_t tern_describe(char *buf, size_t bytes, int json)
{
    struct text t = {buf, bytes, 0};
    struct tern_rt *rt = tern_rt_current;
    if (bytes)
        buf[0] = '\0';
    if (!rt && json)
        add(&t, "{\"version\":\"%d.%d.%d\",\"build\":\"%s\",\"running\":false}", TERN_VERSION_MAJOR, TERN_VERSION_MINOR,
            TERN_VERSION_PATCH, tern_device_name());
    else if (!rt)
        add(&t, "version      %d.%d.%d (ABI %u), %s device\nno runtime is running\n", TERN_VERSION_MAJOR,
            TERN_VERSION_MINOR, TERN_VERSION_PATCH, TERN_ABI_VERSION, tern_device_name());
    else if (json)
        rt_json(&t, rt);
    else
        rt_text(&t, rt);
    return t.used;
}
