/* HTTP/1.0: the answer ends where the connection does. */
#include "stage_ask.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http.h"

#define REQUEST_BYTES 2048
#define PATH_BYTES (64 + ASK_ITEMS_MAX * 8)

static int connect_to(uint16_t port, uint64_t timeout_ms)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port)};
    struct timeval limit = {(time_t)(timeout_ms / 1000),
                            (suseconds_t)(timeout_ms % 1000 * 1000)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd != -1 &&
        (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0 ||
         connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

/* Returns the size of all up to the end, or 0. */
static size_t receive(int fd, char *data, size_t capacity, uint64_t timeout_ms)
{
    uint64_t end_ms = http_now_ms() + timeout_ms;
    size_t size = 0;

    while (size < capacity) {
        uint64_t now_ms = http_now_ms();
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ssize_t got;
        if (now_ms >= end_ms || poll(&ready, 1, (int)(end_ms - now_ms)) <= 0)
            return 0;
        got = recv(fd, data + size, capacity - size, 0);
        if (got < 0)
            return 0;
        if (got == 0)
            return size;
        size += (size_t)got;
    }
    return 0;
}

static int parse(char *data, size_t size, json_t **answer)
{
    const char *body;
    long status;

    data[size] = '\0';
    if (strncmp(data, "HTTP/1.", 7) != 0 || size < 12)
        return 0;
    status = strtol(data + strlen("HTTP/1.x"), NULL, 10);
    body = strstr(data, "\r\n\r\n");
    if (body == NULL || status < 100 || status > 599)
        return 0;
    if (answer != NULL)
        *answer = json_loads(body + 4, 0, NULL);
    return (int)status;
}

int ask(uint16_t port, const char *method, const char *path, const char *body,
        uint64_t timeout_ms, json_t **answer)
{
    char request[REQUEST_BYTES], data[ASK_BYTES + 1];
    int length = snprintf(request, sizeof(request),
                          "%s %s HTTP/1.0\r\nHost: 127.0.0.1:%u\r\n"
                          "Content-Type: application/json\r\n"
                          "Content-Length: %zu\r\n\r\n%s",
                          method, path, port, body != NULL ? strlen(body) : 0,
                          body != NULL ? body : "");
    int fd, status = 0;
    size_t size;

    if (answer != NULL)
        *answer = NULL;
    if (length < 0 || (size_t)length >= sizeof(request) || port == 0 ||
        (fd = connect_to(port, timeout_ms)) == -1)
        return 0;
    if (send(fd, request, (size_t)length, MSG_NOSIGNAL) == length &&
        (size = receive(fd, data, ASK_BYTES, timeout_ms)) > 0)
        status = parse(data, size, answer);
    (void)close(fd);
    return status;
}

int ask_items(uint16_t port, const char *method, const char *path,
              uint64_t first, uint64_t count, uint64_t timeout_ms)
{
    char whole[PATH_BYTES];
    size_t size =
        (size_t)snprintf(whole, sizeof(whole), "%s%" PRIu64, path, first);

    for (uint64_t i = 1; i < count; i++)
        size += (size_t)snprintf(whole + size, sizeof(whole) - size,
                                 ",%" PRIu64, first + i);
    return ask(port, method, whole, NULL, timeout_ms, NULL);
}
