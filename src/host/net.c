/* net.c - addresses, listeners and connections over TCP. */
#include "host/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/fork.h"

static const unsigned char mapped_prefix[12] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const struct tern_addr *addr)
{
    return !memcmp(addr->byte, mapped_prefix, sizeof mapped_prefix);
}

static bool from_sockaddr(const struct sockaddr *sa, struct tern_addr *addr)
{
    if (sa->sa_family == AF_INET) {
        memcpy(addr->byte, mapped_prefix, sizeof mapped_prefix);
        memcpy(addr->byte + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
        return true;
    }
    if (sa->sa_family == AF_INET6) {
        memcpy(addr->byte, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
        return true;
    }
    return false;
}

static socklen_t to_sockaddr(const struct tern_addr *addr, uint16_t port, struct sockaddr_storage *ss)
{
    memset(ss, 0, sizeof *ss);
    if (is_v4(addr)) {
        struct sockaddr_in *in = (struct sockaddr_in *)ss;
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, addr->byte + 12, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    memcpy(&in6->sin6_addr, addr->byte, 16);
    return sizeof *in6;
}

void tern_net_loopback(struct tern_addr *addr)
{
    static const unsigned char loopback[4] = {127, 0, 0, 1};
    memcpy(addr->byte, mapped_prefix, sizeof mapped_prefix);
    memcpy(addr->byte + 12, loopback, sizeof loopback);
}

static void list_add(struct tern_addr *list, int max, int *count, const struct tern_addr *addr)
{
    for (int i = 0; i < *count; i++) {
        if (!memcmp(&list[i], addr, sizeof *addr))
            return;
    }
    if (*count < max)
        list[(*count)++] = *addr;
}

/* The address by which this host speaks to the world: the route decides, nothing is sent. */
static bool default_route(const char *target, struct tern_addr *addr)
{
    struct tern_addr remote = {{0}};
    struct sockaddr_storage ss;
    bool found = false;
    if (strchr(target, ':')) {
        inet_pton(AF_INET6, target, remote.byte);
    } else {
        memcpy(remote.byte, mapped_prefix, sizeof mapped_prefix);
        inet_pton(AF_INET, target, remote.byte + 12);
    }
    socklen_t length = to_sockaddr(&remote, 9, &ss);
    int fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (!connect(fd, (struct sockaddr *)&ss, length)) {
        length = sizeof ss;
        found = !getsockname(fd, (struct sockaddr *)&ss, &length) && from_sockaddr((struct sockaddr *)&ss, addr);
    }
    close(fd);
    return found;
}

int tern_net_addresses(struct tern_addr *list, int max)
{
    struct tern_addr addr;
    struct ifaddrs *interfaces = NULL;
    int count = 0;

    if (default_route("192.0.2.1", &addr)) /* documentation addresses: never a neighbour */
        list_add(list, max - 1, &count, &addr);
    if (default_route("2001:db8::1", &addr))
        list_add(list, max - 1, &count, &addr);
    if (!getifaddrs(&interfaces)) {
        for (struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
            if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK ||
                !from_sockaddr(i->ifa_addr, &addr))
                continue;
            if (addr.byte[0] == 0xfe && (addr.byte[1] & 0xc0) == 0x80)
                continue; /* link-local: useless without its interface */
            list_add(list, max - 1, &count, &addr);
        }
        freeifaddrs(interfaces);
    }
    tern_net_loopback(&addr);
    list_add(list, max, &count, &addr);
    return count;
}

static int listen_on(int family, uint16_t *port)
{
    struct sockaddr_storage ss;
    struct tern_addr any = {{0}};
    socklen_t length;
    int off = 0;

    tern_fork_begin();
    int fd = tern_fork_end(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -1;
    if (family == AF_INET)
        memcpy(any.byte, mapped_prefix, sizeof mapped_prefix);
    else
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    length = to_sockaddr(&any, 0, &ss);
    if (bind(fd, (struct sockaddr *)&ss, length) || listen(fd, SOMAXCONN))
        goto err_close;
    length = sizeof ss;
    if (getsockname(fd, (struct sockaddr *)&ss, &length))
        goto err_close;
    *port = ntohs(family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port : ((struct sockaddr_in6 *)&ss)->sin6_port);
    return fd;
err_close:
    off = errno;
    tern_fork_close(fd);
    errno = off;
    return -1;
}

int tern_net_listen(uint16_t *port)
{
    int fd = listen_on(AF_INET6, port);
    return fd >= 0 ? fd : listen_on(AF_INET, port);
}

int tern_net_connect(const struct tern_addr *addr, uint16_t port)
{
    struct sockaddr_storage ss;
    socklen_t length = to_sockaddr(addr, port, &ss);
    int on = 1, saved;
    tern_fork_begin();
    int fd = tern_fork_end(socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    errno = 0;
    if (!connect(fd, (struct sockaddr *)&ss, length) || errno == EINPROGRESS)
        return fd;
    saved = errno;
    tern_fork_close(fd);
    errno = saved;
    return -1;
}

void tern_net_name(const struct tern_addr *addr, uint16_t port, char *buf, size_t bytes)
{
    char text[INET6_ADDRSTRLEN] = "?";
    if (is_v4(addr))
        inet_ntop(AF_INET, addr->byte + 12, text, sizeof text);
    else
        inet_ntop(AF_INET6, addr->byte, text, sizeof text);
    snprintf(buf, bytes, is_v4(addr) ? "%s:%u" : "[%s]:%u", text, port);
}
