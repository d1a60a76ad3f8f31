/* nic.h - which RDMA device, port and GID a PE uses: by sysfs alone, so that fixtures can stand in for machines. */
#ifndef TERN_PROXY_NIC_H
#define TERN_PROXY_NIC_H

#include <stdbool.h>
#include <tern/tern.h>

struct tern_nic_query {
    const char *sysfs; /* TERN_SYSFS_ROOT, "" = /sys */
    const char *names; /* TERN_NIC: "dev[:port],...", "" = all */
    int gid_index;     /* TERN_GID_INDEX, -1 = choose */
    const char
        *near; /* folder of the device that the NIC is to be near, below the root ("devices/pci0000:00/..."), or "" */
    int numa;  /* NUMA node of the PE's cores, -1 = any; used where `near` is "" */
    int rank;  /* of the PE among those of its node: deals out equals */
};

struct tern_nic {
    char device[64];
    int port, gid_index;
    bool ethernet; /* RoCE; else InfiniBand */
    char why[160];
};

/*
 * The nearest active port by PCI path, then by NUMA node; of equals the (rank mod their number)-th by name. With
 * `names`: of the named ones, each of which must be there and active.
 */
tern_status_t tern_nic_choose(const struct tern_nic_query *query, struct tern_nic *nic);
/* Is any port active? `why`: static text. */
bool tern_nic_any(const char *sysfs, const char **why);

#endif
