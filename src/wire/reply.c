/* Replies, and the table of what Redis's errors mean. Its one invariant: a
 * reply of an unexpected type reads as no value. */
#include "wire/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash_tag.h"

#define MS_PER_S UINT64_C(1000)
#define US_PER_S UINT64_C(1000000)
#define US_PER_MS UINT64_C(1000)
#define LATEST_S (UINT64_C(1) << 40) /* so that no sum with it overflows */

/* room: behind the struct. */
static struct shed_reply *create(enum shed_reply_type type, size_t size,
                                 size_t room)
{
    struct shed_reply *reply = malloc(sizeof(*reply) + room);

    if (reply != NULL)
        *reply = (struct shed_reply){.type = type, .size = size};
    return reply;
}

struct shed_reply *shed_reply_create(enum shed_reply_type type,
                                     long long integer)
{
    struct shed_reply *reply = create(type, 0, 0);

    if (reply != NULL)
        reply->integer = integer;
    return reply;
}

static void hide_arguments(struct shed_reply *error)
{
    char *arguments = strstr(error->text, ", with args");

    if (arguments == NULL)
        return;
    *arguments = '\0';
    error->size = (size_t)(arguments - error->text);
}

struct shed_reply *shed_reply_create_text(enum shed_reply_type type,
                                          const char *bytes, size_t size)
{
    struct shed_reply *reply = create(type, size, size + 1);

    if (reply == NULL)
        return NULL;
    reply->text = (char *)(reply + 1);
    reply->text[size] = '\0';
    if (bytes != NULL && size > 0)
        memcpy(reply->text, bytes, size);
    if (type == SHED_REPLY_ERROR)
        hide_arguments(reply);
    return reply;
}

struct shed_reply *shed_reply_create_array(size_t size)
{
    struct shed_reply *reply =
        create(SHED_REPLY_ARRAY, size, size * sizeof(void *));

    if (reply == NULL)
        return NULL;
    reply->at = (struct shed_reply **)(void *)(reply + 1);
    for (size_t i = 0; i < size; i++)
        reply->at[i] = NULL;
    return reply;
}

static bool is_of(const struct shed_reply *reply, enum shed_reply_type type)
{
    return reply != NULL && reply->type == type;
}

const char *shed_reply_bytes(const struct shed_reply *reply, size_t *size)
{
    if (!is_of(reply, SHED_REPLY_STRING))
        return NULL;
    *size = reply->size;
    return reply->text;
}

bool shed_reply_copy(const struct shed_reply *reply, char *to, size_t room)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    if (bytes == NULL || size == 0 || size >= room ||
        memchr(bytes, '\0', size) != NULL)
        return false;
    memcpy(to, bytes, size + 1);
    return true;
}

const char *shed_reply_error(const struct shed_reply *reply)
{
    return is_of(reply, SHED_REPLY_ERROR) ? reply->text : NULL;
}

long long shed_reply_integer(const struct shed_reply *reply)
{
    return is_of(reply, SHED_REPLY_INTEGER) ? reply->integer : -1;
}

uint64_t shed_reply_digits(const struct shed_reply *reply)
{
    size_t size;
    const char *text = shed_reply_bytes(reply, &size);

    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

size_t shed_reply_count(const struct shed_reply *reply)
{
    return is_of(reply, SHED_REPLY_ARRAY) ? reply->size : 0;
}

struct shed_reply *shed_reply_at(const struct shed_reply *reply, size_t i)
{
    return i < shed_reply_count(reply) ? reply->at[i] : NULL;
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
        reply->at[i] = NULL;
    return element;
}

bool shed_reply_is_nil(const struct shed_reply *reply)
{
    return is_of(reply, SHED_REPLY_NIL);
}

bool shed_reply_begins(const struct shed_reply *reply, const char *text)
{
    return (is_of(reply, SHED_REPLY_STRING) ||
            is_of(reply, SHED_REPLY_ERROR)) &&
           strncmp(reply->text, text, strlen(text)) == 0;
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

/* What an error says of its server, besides the trouble that it means. */
enum {
    NOTHING = 0,
    UNFIT = 1,      /* it cannot do its work now */
    NO_PRIMARY = 2, /* another server takes writes */
    ELSEWHERE = 4   /* a cluster's node: the slot is not served here */
};

static const struct meaning {
    const char *what;
    enum shed_trouble trouble;
    unsigned says;
    bool is_phrase; /* anywhere in the text; else a code */
} meanings[] = {
    {"LOADING", SHED_TROUBLE_PASSING, UNFIT, false},
    {"BUSY", SHED_TROUBLE_PASSING, UNFIT, false},
    /* of a slot that is being moved, which can last: a script of two keys
     * is not executed before its end unless both are there */
    {"TRYAGAIN", SHED_TROUBLE_DOWN, ELSEWHERE, false},
    {"MASTERDOWN", SHED_TROUBLE_PASSING, NO_PRIMARY, false},
    {"CLUSTERDOWN The cluster", SHED_TROUBLE_PASSING, UNFIT | ELSEWHERE, false},
    {"CLUSTERDOWN", SHED_TROUBLE_PASSING, ELSEWHERE, false},
    {"OOM", SHED_TROUBLE_NO_WRITE, NOTHING, false},
    {"MISCONF", SHED_TROUBLE_NO_WRITE, NOTHING, false},
    {"NOREPLICAS", SHED_TROUBLE_NO_WRITE, NOTHING, false},
    /* the connection is dropped, and the next one may reach another server */
    {"READONLY", SHED_TROUBLE_PASSING, NO_PRIMARY, false},
    {"MOVED ", SHED_TROUBLE_PASSING, ELSEWHERE, false},
    {"ASK ", SHED_TROUBLE_PASSING, ELSEWHERE, false},
    {"NOAUTH", SHED_TROUBLE_DENIED, NOTHING, false},
    {"WRONGPASS", SHED_TROUBLE_DENIED, NOTHING, false},
    {"NOPERM", SHED_TROUBLE_DENIED, NOTHING, false},
    {"DENIED", SHED_TROUBLE_DENIED, NOTHING, false}, /* protected mode */
    {"max number of clients", SHED_TROUBLE_PASSING, UNFIT, true},
    /* before AUTH, for a command with more than ten arguments */
    {"unauthenticated", SHED_TROUBLE_DENIED, NOTHING, true},
    {"invalid password", SHED_TROUBLE_DENIED, NOTHING, true},
    {"invalid username-password", SHED_TROUBLE_DENIED, NOTHING, true},
    {"permissions", SHED_TROUBLE_DENIED, NOTHING, true},
    /* renamed, or not of this server; the others are from scripts */
    {"unknown command", SHED_TROUBLE_DENIED, NOTHING, true},
    {"Unknown Redis command", SHED_TROUBLE_DENIED, NOTHING, true},
    {"Unknown command", SHED_TROUBLE_DENIED, NOTHING, true},
    /* Redis 7.0, for a command inside a script */
    {"The user executing the script", SHED_TROUBLE_DENIED, NOTHING, true},
};

static const struct meaning no_meaning = {"", SHED_TROUBLE_DOWN, NOTHING, true};

static const struct meaning *meaning_of(const struct shed_reply *error)
{
    const char *text = shed_reply_error(error);
    const struct meaning *end = meanings + sizeof(meanings) / sizeof(*meanings);

    for (const struct meaning *m = meanings; text != NULL && m < end; m++)
        if (m->is_phrase ? strstr(text, m->what) != NULL
                         : has_code(text, m->what))
            return m;
    return &no_meaning;
}

enum shed_trouble shed_reply_trouble(const struct shed_reply *error)
{
    return meaning_of(error)->trouble;
}

bool shed_reply_is_unfit(const struct shed_reply *reply)
{
    return meaning_of(reply)->says & UNFIT;
}

bool shed_reply_is_no_primary(const struct shed_reply *error)
{
    return meaning_of(error)->says & NO_PRIMARY;
}

/* Where a script reports it, commands before it may have been executed. */
bool shed_reply_is_elsewhere(const struct shed_reply *error)
{
    const struct meaning *m = meaning_of(error);

    return m->says & ELSEWHERE && shed_reply_begins(error, m->what);
}

bool shed_place_is_same(const struct shed_place *a, const struct shed_place *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0;
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
    if (size >= sizeof(out->to.host) ||
        strlen(port + 1) >= sizeof(out->to.port))
        return false;
    *out = (struct shed_redirect){.is_ask = is_ask, .slot = (unsigned)slot};
    memcpy(out->to.host, host, size);
    memcpy(out->to.port, port + 1, strlen(port + 1));
    return true;
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

void shed_reply_free(void *whole)
{
    struct shed_reply *reply = whole;

    for (size_t i = 0; i < shed_reply_count(reply); i++)
        shed_reply_free(reply->at[i]);
    free(reply);
}

void shed_reply_free_all(struct shed_reply **replies, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        shed_reply_free(replies[i]);
        replies[i] = NULL;
    }
}
