/* Replies from Redis: trees, which parser.h makes. */
#ifndef SHED_WIRE_REPLY_H
#define SHED_WIRE_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <snowshed/snowshed.h>

#include "base/trouble.h"
#include "base/value.h"

enum shed_reply_type {
    SHED_REPLY_NIL,
    SHED_REPLY_INTEGER,
    SHED_REPLY_STRING, /* or a status */
    SHED_REPLY_ERROR,
    SHED_REPLY_ARRAY
};

/* One allocation for all but the elements of an array. */
struct shed_reply {
    enum shed_reply_type type;
    size_t size; /* bytes of a string or an error, elements of an array */
    long long integer;
    char *text;             /* of a string or an error; '\0' follows */
    struct shed_reply **at; /* of an array; NULL: an element was taken out */
    struct shed_value_block value; /* room for that of an entry in text */
};

/* Where a server is, in text. An empty host: that is not known. */
#define SHED_HOST_BYTES 256
#define SHED_PORT_BYTES 12

struct shed_place {
    char host[SHED_HOST_BYTES];
    char port[SHED_PORT_BYTES];
};

bool shed_place_is_same(const struct shed_place *a, const struct shed_place *b);

/* Bytes of a string or status; NULL for any other reply, and for NULL. */
const char *shed_reply_bytes(const struct shed_reply *reply, size_t *size);

/* Copy a string or status as text. Returns: false: it is neither, empty, has a
 * zero byte, or has no room. */
bool shed_reply_copy(const struct shed_reply *reply, char *to, size_t room);

/* The text of an error reply, NULL for any other. */
const char *shed_reply_error(const struct shed_reply *reply);

/* The number, or -1 if the reply is not an integer. */
long long shed_reply_integer(const struct shed_reply *reply);

/* The number in the digits of a string, 0 if there is none. */
uint64_t shed_reply_digits(const struct shed_reply *reply);

/* The answer to TIME in ms since 1970; 0: it is none. */
uint64_t shed_reply_time_ms(const struct shed_reply *reply);

/* The i-th element of an array, NULL if there is none. */
struct shed_reply *shed_reply_at(const struct shed_reply *reply, size_t i);
size_t shed_reply_count(const struct shed_reply *reply);

bool shed_reply_is_nil(const struct shed_reply *reply);

/* Whether a string, status or error begins with text. */
bool shed_reply_begins(const struct shed_reply *reply, const char *text);

/* Take an element out of its array. It then belongs to the caller. */
struct shed_reply *shed_reply_take(struct shed_reply *reply, size_t i);

/* The trouble that an error reply means. Its code decides, which in a script's
 * error can be anywhere in the text. */
enum shed_trouble shed_reply_trouble(const struct shed_reply *error);

/* Whether an error says that the server cannot do its work now: it loads its
 * data, or is busy with a script. Not one that refuses writes only, as reads
 * are answered, nor that of a replica, which is left for another server. */
bool shed_reply_is_unfit(const struct shed_reply *reply);

/* Whether an error says that the server is not a primary. The command was not
 * executed; writes must go to another server. */
bool shed_reply_is_no_primary(const struct shed_reply *error);

/* Whether an error of a cluster's node says that the command was not executed:
 * its key is elsewhere, or its slot is being moved or served by nobody. */
bool shed_reply_is_elsewhere(const struct shed_reply *error);

/* Where a node of a cluster sends its caller. */
struct shed_redirect {
    bool is_ask; /* for this command alone, behind ASKING */
    unsigned slot;
    struct shed_place to;
};

/* own: the host of the node, which may leave it out. Returns: false: the reply
 * is neither MOVED nor ASK. */
bool shed_reply_redirect(const struct shed_reply *reply, const char *own,
                         struct shed_redirect *out);

/* Whether the reply to ROLE names something other than a primary. */
bool shed_reply_is_other_role(const struct shed_reply *role);

/* The code that a caller gets for an error reply: SHED_EDENIED or
 * SHED_EREDIS. */
enum shed_code shed_reply_code(const struct shed_reply *error);

/* Create a reply. Of a text, size bytes are copied, unless bytes is NULL: then
 * they are to be filled in. The elements of an array are NULL. An error that
 * repeats a command's arguments ends before them, because they may include a
 * password, or a payload. Returns: NULL when out of memory. */
struct shed_reply *shed_reply_create(enum shed_reply_type type,
                                     long long integer);
struct shed_reply *shed_reply_create_text(enum shed_reply_type type,
                                          const char *bytes, size_t size);
struct shed_reply *shed_reply_create_array(size_t size);

/* NULL is allowed. The parameter is a struct shed_reply; it is void * because a
 * reply is the owner of a value in it. */
void shed_reply_free(void *reply);

/* Free count replies, and set them to NULL. */
void shed_reply_free_all(struct shed_reply **replies, size_t count);

#endif
