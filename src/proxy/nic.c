/* nic.c - choice of the RDMA device from sysfs:
 * class/infiniband/DEV/{device,ports/N/{state,link_layer,gids,gid_attrs}}. */
#include "proxy/nic.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/log.h"

#define NIC_MOST 64
#define GID_MOST 256
#define PATH_BYTES 512

struct candidate {
    char device[64];
    int port;
    int distance;
};

static const char *root_of(const char *sysfs)
{
    return *sysfs ? sysfs : "/sys";
}

/* First line of a file. False: there is none. */
static bool read_line(char *line, size_t bytes, const char *path)
{
    FILE *file = fopen(path, "r");
    bool read = file && fgets(line, (int)bytes, file);

    if (file)
        fclose(file);
    if (read)
        line[strcspn(line, "\n")] = '\0';
    return read;
}

static bool port_file(const char *sysfs, const char *device, int port, const char *name, char *line, size_t bytes)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/class/infiniband/%.63s/ports/%d/%s", root_of(sysfs), device, port, name);
    return read_line(line, bytes, path);
}

static bool port_active(const char *sysfs, const char *device, int port, char *state, size_t bytes)
{
    return port_file(sysfs, device, port, "state", state, bytes) && strncmp(state, "4:", 2) == 0;
}

/* ---- distance ---------------------------------------------------------------------------------------------------- */

/* Folder of the device's hardware below the root, links resolved; "" for devices without (software). */
static void device_folder(const char *sysfs, const char *device, char *folder, size_t bytes)
{
    char path[PATH_BYTES], root[PATH_BYTES], *real, *real_root;

    snprintf(path, sizeof path, "%s/class/infiniband/%.63s/device", root_of(sysfs), device);
    snprintf(root, sizeof root, "%s", root_of(sysfs));
    real = realpath(path, NULL);
    real_root = realpath(root, NULL);
    folder[0] = '\0';
    if (real && real_root && strncmp(real, real_root, strlen(real_root)) == 0)
        snprintf(folder, bytes, "%s", real + strlen(real_root) + 1);
    free(real);
    free(real_root);
}

/* Bridges on the way from one to the other: folders that are not common. */
static int path_distance(const char *a, const char *b)
{
    size_t common = 0;
    int steps = 0;

    for (size_t i = 0; a[i] == b[i]; i++) {
        if (!a[i])
            return 0;
        if (a[i] == '/')
            common = i;
    }
    for (const char *p = a + common; *p; p++)
        steps += *p == '/';
    for (const char *p = b + common; *p; p++)
        steps += *p == '/';
    return steps;
}

#define OTHER_ROOT 100 /* not below one PCI root: farther than anything that is */
#define OTHER_NUMA 200

static int numa_of(const char *sysfs, const char *folder)
{
    char path[PATH_BYTES], line[16];
    snprintf(path, sizeof path, "%s/%s/numa_node", root_of(sysfs), folder);
    return *folder && read_line(line, sizeof line, path) ? atoi(line) : -1;
}

static bool same_root(const char *a, const char *b)
{
    const char *bus = "devices/pci";
    size_t n = strlen(bus);
    return strncmp(a, bus, n) == 0 && strncmp(b, bus, n) == 0 && strcspn(a + n, "/") == strcspn(b + n, "/") &&
           strncmp(a + n, b + n, strcspn(a + n, "/")) == 0;
}

static int distance(const struct tern_nic_query *q, const char *device)
{
    char folder[PATH_BYTES];
    int numa, wanted = *q->near ? numa_of(q->sysfs, q->near) : q->numa;

    device_folder(q->sysfs, device, folder, sizeof folder);
    if (*q->near && same_root(folder, q->near))
        return path_distance(folder, q->near);
    numa = numa_of(q->sysfs, folder);
    return numa < 0 || wanted < 0 || numa == wanted ? OTHER_ROOT : OTHER_NUMA;
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    int order = strcmp(x->device, y->device);
    return order ? order : x->port - y->port;
}

static bool is_entry(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* All active ports. */
static int all_ports(const char *sysfs, struct candidate *found)
{
    char path[PATH_BYTES], state[32];
    int count = 0;
    snprintf(path, sizeof path, "%s/class/infiniband", root_of(sysfs));
    DIR *devices = opendir(path);

    for (struct dirent *device; devices && (device = readdir(devices));) {
        if (!is_entry(device) || strlen(device->d_name) >= sizeof found->device)
            continue;
        for (int port = 1; port <= 8 && count < NIC_MOST; port++) {
            if (port_active(sysfs, device->d_name, port, state, sizeof state)) {
                snprintf(found[count].device, sizeof found->device, "%.63s", device->d_name);
                found[count++].port = port;
            }
        }
    }
    if (devices)
        closedir(devices);
    qsort(found, (size_t)count, sizeof *found, by_name);
    return count;
}

/* "dev[:port]" of TERN_NIC. */
static tern_status_t named_port(const struct tern_nic_query *q, const char *name, struct candidate *found)
{
    char state[32];
    const char *colon = strchr(name, ':');
    size_t length = colon ? (size_t)(colon - name) : strlen(name);
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : 1;

    if (length == 0 || length >= sizeof found->device || (colon && (end == colon + 1 || *end)) || port < 1 ||
        port > 255)
        return tern_error(TERN_ERR_CONFIG, "TERN_NIC: '%s' is no device, or device:port; ibv_devices lists the devices",
                          name);
    snprintf(found->device, sizeof found->device, "%.*s", (int)length, name);
    found->port = (int)port;
    if (!port_file(q->sysfs, found->device, found->port, "state", state, sizeof state))
        return tern_error(TERN_ERR_CONFIG,
                          "TERN_NIC: there is no RDMA device '%s' with a port %d; ibv_devices lists the devices",
                          found->device, found->port);
    if (strncmp(state, "4:", 2) != 0)
        return tern_error(TERN_ERR_CONFIG,
                          "TERN_NIC: port %d of %s is not active (%s); bring its link up, or name another device",
                          found->port, found->device, state);
    return TERN_OK;
}

static tern_status_t named_ports(const struct tern_nic_query *q, struct candidate *found, int *count)
{
    char *names = strdup(q->names), *rest = names, *name;
    tern_status_t status = names ? TERN_OK : tern_error(TERN_ERR_NO_MEMORY, "no host memory for TERN_NIC");

    *count = 0;
    while (status == TERN_OK && (name = strsep(&rest, ","))) {
        if (*count == NIC_MOST)
            status = tern_error(TERN_ERR_CONFIG, "TERN_NIC names more than %d devices", NIC_MOST);
        else
            status = named_port(q, name, &found[(*count)++]);
    }
    free(names);
    return status;
}

/* ---- GID --------------------------------------------------------------------------------------------------------- */

enum {
    GID_NONE,
    GID_OTHER,
    GID_LINK_LOCAL,
    GID_GLOBAL,
    GID_IPV4
}; /* of RoCE v2, the better the higher; OTHER: RoCE v1 */

static int gid_kind(const struct tern_nic_query *q, const struct tern_nic *nic, int index)
{
    char name[64], gid[64], type[32];

    snprintf(name, sizeof name, "gids/%d", index);
    if (!port_file(q->sysfs, nic->device, nic->port, name, gid, sizeof gid) || strspn(gid, "0:") == strlen(gid))
        return GID_NONE;
    snprintf(name, sizeof name, "gid_attrs/types/%d", index);
    if (nic->ethernet && (!port_file(q->sysfs, nic->device, nic->port, name, type, sizeof type) || !strstr(type, "v2")))
        return GID_OTHER;
    if (strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30) == 0)
        return GID_IPV4;
    return strncmp(gid, "fe80:", 5) == 0 ? GID_LINK_LOCAL : GID_GLOBAL;
}

static tern_status_t choose_gid(const struct tern_nic_query *q, struct tern_nic *nic)
{
    int best = GID_OTHER;

    if (q->gid_index >= 0) {
        int kind = gid_kind(q, nic, q->gid_index);
        if (kind == GID_NONE)
            return tern_error(
                TERN_ERR_CONFIG,
                "TERN_GID_INDEX=%d: port %d of %s has no such GID; see /sys/class/infiniband/%s/ports/%d/gids",
                q->gid_index, nic->port, nic->device, nic->device, nic->port);
        if (kind == GID_OTHER)
            return tern_error(
                TERN_ERR_CONFIG,
                "TERN_GID_INDEX=%d: this GID of port %d of %s is not of RoCE v2; choose one whose gid_attrs/types "
                "says so, or leave the choice to Tern",
                q->gid_index, nic->port, nic->device);
        nic->gid_index = q->gid_index;
        return TERN_OK;
    }
    nic->gid_index = 0;
    if (!nic->ethernet)
        return TERN_OK;
    for (int i = 0; i < GID_MOST; i++) {
        int kind = gid_kind(q, nic, i);
        if (kind > best) {
            best = kind;
            nic->gid_index = i;
        }
    }
    if (best == GID_OTHER)
        return tern_error(TERN_ERR_UNREACHABLE,
                          "port %d of %s has no GID of RoCE v2; give its network interface an address", nic->port,
                          nic->device);
    return TERN_OK;
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */

bool tern_nic_any(const char *sysfs, const char **why)
{
    struct candidate found[NIC_MOST];
    int count = all_ports(sysfs, found);
    *why = count ? "an RDMA port is active" : "there is no RDMA device with an active port";
    return count > 0;
}

tern_status_t tern_nic_choose(const struct tern_nic_query *q, struct tern_nic *nic)
{
    struct candidate found[NIC_MOST];
    int count, nearest = OTHER_NUMA + 1, equals = 0, pick;
    char layer[32] = "";
    tern_status_t status = TERN_OK;

    memset(nic, 0, sizeof *nic);
    if (*q->names)
        status = named_ports(q, found, &count);
    else
        count = all_ports(q->sysfs, found);
    if (status != TERN_OK)
        return status;
    if (count == 0)
        return tern_error(TERN_ERR_UNREACHABLE,
                          "there is no RDMA device with an active port; ibv_devinfo shows their state");
    for (int i = 0; i < count; i++) {
        found[i].distance = *q->names ? 0 : distance(q, found[i].device); /* named ones are equals */
        nearest = found[i].distance < nearest ? found[i].distance : nearest;
    }
    for (int i = 0; i < count; i++)
        equals += found[i].distance == nearest;
    pick = q->rank % equals;
    for (int i = 0; i < count; i++) {
        if (found[i].distance == nearest && pick-- == 0) {
            snprintf(nic->device, sizeof nic->device, "%.63s", found[i].device);
            nic->port = found[i].port;
        }
    }
    snprintf(nic->why, sizeof nic->why, "%s, number %d of %d",
             *q->names               ? "named by TERN_NIC"
             : nearest < OTHER_ROOT  ? "nearest by PCI"
             : nearest == OTHER_ROOT ? "of this NUMA node, or of none"
                                     : "of another NUMA node",
             q->rank % equals + 1, equals);
    port_file(q->sysfs, nic->device, nic->port, "link_layer", layer, sizeof layer);
    nic->ethernet = strcmp(layer, "Ethernet") == 0;
    return choose_gid(q, nic);
}
