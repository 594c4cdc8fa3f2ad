/* Sockets of 127.0.0.1, and of paths. A test fails if there is none. */
#ifndef SOCKETS_H
#define SOCKETS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <check.h>

static inline struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static inline struct sockaddr_un socket_name(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    ck_assert_uint_lt(
        (size_t)snprintf(name.sun_path, sizeof(name.sun_path), "%s", path),
        sizeof(name.sun_path));
    return name;
}

/* family: AF_INET or AF_UNIX. */
static inline int open_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    return fd;
}

/* A socket that is bound to a port that nobody uses. */
static inline int bind_any_port(unsigned *port)
{
    struct sockaddr_in name = loopback(0);
    socklen_t size = sizeof(name);
    int fd = open_socket(AF_INET);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, size), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&name, &size), 0);
    *port = ntohs(name.sin_port);
    return fd;
}

static inline int bind_path(const char *path)
{
    struct sockaddr_un name = socket_name(path);
    int fd = open_socket(AF_UNIX);

    ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    return fd;
}

#endif
