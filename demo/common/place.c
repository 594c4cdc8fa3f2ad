/* The URI of the database, cut into parts that are decoded one by one. */
#include "place.h"

#include <stdlib.h>
#include <string.h>

#define SCHEME "mysql://"
#define SOCKET_PARAMETER "?socket="
#define PART_BYTES 256
#define HEX 16

static struct {
    char user[PART_BYTES], password[PART_BYTES], host[PART_BYTES];
    char socket[PART_BYTES], database[PART_BYTES];
    unsigned port;
} place;

/* Undo the percent-encoding of [begin, end). */
static void decode(char out[PART_BYTES], const char *begin, const char *end)
{
    size_t size = 0;

    while (begin < end && size < PART_BYTES - 1) {
        char digits[3] = "";
        if (*begin != '%' || end - begin < 3) {
            out[size++] = *begin++;
            continue;
        }
        memcpy(digits, begin + 1, sizeof(digits) - 1);
        out[size++] = (char)strtoul(digits, NULL, HEX);
        begin += 1 + strlen(digits);
    }
    out[size] = '\0';
}

/* user[:password]@; returns what follows. */
static const char *take_user(const char *c, const char *end)
{
    const char *at = end, *colon;

    while (at > c && *at != '@')
        at--;
    if (*at != '@')
        return c;
    colon = memchr(c, ':', (size_t)(at - c));
    decode(place.user, c, colon != NULL ? colon : at);
    if (colon != NULL)
        decode(place.password, colon + 1, at);
    return at + 1;
}

const char *place_parse(const char *uri)
{
    const char *c, *slash, *question, *colon;

    if (strncmp(uri, SCHEME, strlen(SCHEME)) != 0)
        return "must begin with " SCHEME;
    c = uri + strlen(SCHEME);
    c = take_user(c, c + strcspn(c, "/?"));
    slash = strchr(c, '/');
    if (slash == NULL || slash[1] == '\0' || slash[1] == '?')
        return "must name a database: mysql://user@host/database";
    question = slash + strcspn(slash, "?");
    decode(place.database, slash + 1, question);
    colon = memchr(c, ':', (size_t)(slash - c));
    decode(place.host, c, colon != NULL ? colon : slash);
    if (colon != NULL)
        place.port = (unsigned)strtoul(colon + 1, NULL, 10);
    if (strncmp(question, SOCKET_PARAMETER, strlen(SOCKET_PARAMETER)) == 0)
        decode(place.socket, question + strlen(SOCKET_PARAMETER),
               question + strlen(question));
    else if (*question != '\0')
        return "only ?socket=/path may follow the database";
    return NULL;
}

static const char *or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

bool place_connect(MYSQL *mysql, unsigned long flags)
{
    return mysql_real_connect(mysql, or_null(place.host), or_null(place.user),
                              or_null(place.password), place.database,
                              place.port, or_null(place.socket), flags) != NULL;
}
