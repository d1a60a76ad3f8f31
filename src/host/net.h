/* net.h - TCP helpers of the unique-id bootstrap and the control plane. Addresses are 16 bytes, IPv4 as ::ffff:a.b.c.d.
 */
#ifndef TERN_HOST_NET_H
#define TERN_HOST_NET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct tern_addr {
    unsigned char byte[16];
};

/* Addresses of this host, the one of the default route first, loopback last. Returns how many; at least one. */
int tern_net_addresses(struct tern_addr *list, int max);
void tern_net_loopback(struct tern_addr *addr);
/* Non-blocking listener on all addresses, registered with fork.h; -1 and errno on failure. */
int tern_net_listen(uint16_t *port);
/* Non-blocking socket whose connection is on its way (errno 0 or EINPROGRESS), registered with fork.h; -1 and errno. */
int tern_net_connect(const struct tern_addr *addr, uint16_t port);
/* "10.0.0.1:4711" */
void tern_net_name(const struct tern_addr *addr, uint16_t port, char *buf, size_t bytes);

#endif
