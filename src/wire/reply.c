/* Replies: thin accessors over redisReply, and the table of what Redis's errors
 * mean. Its one invariant: a reply of an unexpected type reads as no value. */
#include "wire/reply.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash_tag.h"

_Static_assert(sizeof(redisReply) <= SHED_REPLY_BYTES,
               "the size of a reply is known where memory is bounded");

#define MS_PER_S UINT64_C(1000)
#define US_PER_S UINT64_C(1000000)
#define US_PER_MS UINT64_C(1000)
#define LATEST_S (UINT64_C(1) << 40) /* so that no sum with it overflows */

static const redisReply *inside(const struct shed_reply *reply)
{
    return (const redisReply *)(const void *)reply;
}

const char *shed_reply_bytes(const struct shed_reply *reply, size_t *size)
{
    const redisReply *r = inside(reply);

    if (r == NULL ||
        (r->type != REDIS_REPLY_STRING && r->type != REDIS_REPLY_STATUS))
        return NULL;
    *size = (size_t)r->len;
    return r->str;
}

const char *shed_reply_error(const struct shed_reply *reply)
{
    const redisReply *r = inside(reply);

    return r != NULL && r->type == REDIS_REPLY_ERROR ? r->str : NULL;
}

long long shed_reply_integer(const struct shed_reply *reply)
{
    const redisReply *r = inside(reply);

    return r != NULL && r->type == REDIS_REPLY_INTEGER ? r->integer : -1;
}

uint64_t shed_reply_digits(const struct shed_reply *reply)
{
    size_t size;
    const char *text = shed_reply_bytes(reply, &size);

    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

size_t shed_reply_count(const struct shed_reply *reply)
{
    const redisReply *r = inside(reply);

    return r != NULL && r->type == REDIS_REPLY_ARRAY ? (size_t)r->elements : 0;
}

struct shed_reply *shed_reply_at(const struct shed_reply *reply, size_t i)
{
    if (i >= shed_reply_count(reply))
        return NULL;
    return (struct shed_reply *)(void *)inside(reply)->element[i];
}

uint64_t shed_reply_time_ms(const struct shed_reply *reply)
{
    uint64_t s = shed_reply_digits(shed_reply_at(reply, 0));
    uint64_t us = shed_reply_digits(shed_reply_at(reply, 1));

    return s <= LATEST_S && us < US_PER_S ? s * MS_PER_S + us / US_PER_MS : 0;
}

struct shed_reply *shed_reply_take(struct shed_reply *reply, size_t i)
{
    struct shed_reply *element = shed_reply_at(reply, i);

    if (element != NULL)
        ((redisReply *)(void *)reply)->element[i] = NULL;
    return element;
}

bool shed_reply_is_nil(const struct shed_reply *reply)
{
    return reply != NULL && inside(reply)->type == REDIS_REPLY_NIL;
}

bool shed_reply_begins(const struct shed_reply *reply, const char *text)
{
    const redisReply *r = inside(reply);

    return r != NULL &&
           (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS ||
            r->type == REDIS_REPLY_ERROR) &&
           strncmp(r->str, text, strlen(text)) == 0;
}

/* Whether an error has a code: at its beginning or, from inside a script,
 * behind the place there, which Redis 6 ends with " -", and Redis 7 with ": "
 * if the script has raised the error. Elsewhere it may be part of a user's
 * name. */
static bool has_code(const char *text, const char *code)
{
    for (const char *at = strstr(text, code); at != NULL;
         at = strstr(at + 1, code))
        if (at == text || (at - text >= 2 && (strncmp(at - 2, " -", 2) == 0 ||
                                              strncmp(at - 2, ": ", 2) == 0)))
            return true;
    return false;
}

static bool has_phrase(const char *text, const char *phrase)
{
    return strstr(text, phrase) != NULL;
}

enum shed_trouble shed_reply_trouble(const struct shed_reply *error)
{
    static const struct {
        bool (*is_in)(const char *text, const char *what);
        const char *what;
        enum shed_trouble trouble;
    } rows[] = {
        {has_code, "LOADING", SHED_TROUBLE_PASSING},
        {has_code, "BUSY", SHED_TROUBLE_PASSING},
        /* of a slot that is being moved, which can last: a script of two keys
         * is not executed before its end unless both are there */
        {has_code, "TRYAGAIN", SHED_TROUBLE_DOWN},
        {has_code, "MASTERDOWN", SHED_TROUBLE_PASSING},
        {has_code, "CLUSTERDOWN", SHED_TROUBLE_PASSING},
        {has_code, "OOM", SHED_TROUBLE_NO_WRITE},
        {has_code, "MISCONF", SHED_TROUBLE_NO_WRITE},
        {has_code, "NOREPLICAS", SHED_TROUBLE_NO_WRITE},
        /* the connection is dropped, and the next one may reach another
         * server */
        {has_code, "READONLY", SHED_TROUBLE_PASSING},
        {has_code, "MOVED", SHED_TROUBLE_PASSING},
        {has_code, "ASK", SHED_TROUBLE_PASSING},
        {has_code, "NOAUTH", SHED_TROUBLE_DENIED},
        {has_code, "WRONGPASS", SHED_TROUBLE_DENIED},
        {has_code, "NOPERM", SHED_TROUBLE_DENIED},
        {has_code, "DENIED", SHED_TROUBLE_DENIED}, /* protected mode */
        {has_phrase, "max number of clients", SHED_TROUBLE_PASSING},
        /* before AUTH, for a command with more than ten arguments */
        {has_phrase, "unauthenticated", SHED_TROUBLE_DENIED},
        {has_phrase, "invalid password", SHED_TROUBLE_DENIED},
        {has_phrase, "invalid username-password", SHED_TROUBLE_DENIED},
        {has_phrase, "permissions", SHED_TROUBLE_DENIED},
        /* renamed, or not of this server; the others are from scripts */
        {has_phrase, "unknown command", SHED_TROUBLE_DENIED},
        {has_phrase, "Unknown Redis command", SHED_TROUBLE_DENIED},
        {has_phrase, "Unknown command", SHED_TROUBLE_DENIED},
        /* Redis 7.0, for a command inside a script */
        {has_phrase, "The user executing the script", SHED_TROUBLE_DENIED},
    };
    const char *text = shed_reply_error(error);

    for (size_t i = 0; text != NULL && i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].is_in(text, rows[i].what))
            return rows[i].trouble;
    return SHED_TROUBLE_DOWN;
}

bool shed_reply_is_no_primary(const struct shed_reply *error)
{
    const char *text = shed_reply_error(error);

    return text != NULL &&
           (has_code(text, "READONLY") || has_code(text, "MASTERDOWN"));
}

bool shed_reply_is_elsewhere(const struct shed_reply *error)
{
    return shed_reply_error(error) != NULL && /* not a value that looks so */
           (shed_reply_begins(error, "MOVED ") ||
            shed_reply_begins(error, "ASK ") ||
            shed_reply_begins(error, "TRYAGAIN") ||
            shed_reply_begins(error, "CLUSTERDOWN"));
}

/* MOVED slot host:port; an IPv6 address has colons, too. */
bool shed_reply_redirect(const struct shed_reply *reply, const char *own,
                         struct shed_redirect *out)
{
    bool is_ask = shed_reply_begins(reply, "ASK ");
    const char *text = shed_reply_error(reply), *host, *port;
    char *end = NULL;
    unsigned long slot;
    size_t size;

    if (text == NULL || (!is_ask && !shed_reply_begins(reply, "MOVED ")))
        return false;
    text = strchr(text, ' ') + 1;
    slot = strtoul(text, &end, 10);
    if (end == text || *end != ' ' || slot >= SHED_HASH_SLOTS)
        return false;
    host = end + 1;
    port = strrchr(host, ':');
    if (port == NULL)
        return false;
    size = (size_t)(port - host);
    if (size == 0) {
        host = own;
        size = strlen(own);
    }
    if (size >= sizeof(out->host) || strlen(port + 1) >= sizeof(out->port))
        return false;
    *out = (struct shed_redirect){.is_ask = is_ask, .slot = (unsigned)slot};
    memcpy(out->host, host, size);
    memcpy(out->port, port + 1, strlen(port + 1));
    return true;
}

/* Of the error of a cluster's node: others of its slots are served. */
static bool is_of_one_slot(const struct shed_reply *error)
{
    return shed_reply_is_elsewhere(error) &&
           !shed_reply_begins(error, "CLUSTERDOWN The cluster");
}

bool shed_reply_is_unfit(const struct shed_reply *reply)
{
    return shed_reply_error(reply) != NULL &&
           shed_reply_trouble(reply) == SHED_TROUBLE_PASSING &&
           !shed_reply_is_no_primary(reply) && !is_of_one_slot(reply);
}

bool shed_reply_is_other_role(const struct shed_reply *role)
{
    const struct shed_reply *name = shed_reply_at(role, 0);
    size_t size = 0;

    return shed_reply_bytes(name, &size) != NULL &&
           !shed_reply_begins(name, "master");
}

enum shed_code shed_reply_code(const struct shed_reply *error)
{
    return shed_reply_trouble(error) == SHED_TROUBLE_DENIED ? SHED_EDENIED
                                                            : SHED_EREDIS;
}

/* By the parser, whose allocator may be the program's own. */
struct shed_reply *shed_reply_make_error(const char *text)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    if (reader != NULL &&
        (redisReaderFeed(reader, "-", 1) != REDIS_OK ||
         redisReaderFeed(reader, text, strlen(text)) != REDIS_OK ||
         redisReaderFeed(reader, "\r\n", 2) != REDIS_OK ||
         redisReaderGetReply(reader, &reply) != REDIS_OK))
        reply = NULL;
    if (reader != NULL)
        redisReaderFree(reader);
    return reply;
}

void shed_reply_free(void *reply)
{
    if (reply != NULL)
        freeReplyObject(reply);
}

void shed_reply_free_all(struct shed_reply **replies, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        shed_reply_free(replies[i]);
        replies[i] = NULL;
    }
}
