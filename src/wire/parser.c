/* The parser. Its one invariant: no sum here can overflow, because the stream
 * ends at a number over its limit.
 * Source: the specification of RESP, redis.io/docs/reference/protocol-spec. */
#include "wire/parser.h"

#include <limits.h>
#include <string.h>

#define LINE_END_BYTES ((size_t)2)

/* Put a reply into the array that it is an element of; that may complete it.
 * Returns: the whole reply; NULL: it is not complete yet. */
static struct shed_reply *place(struct shed_parser *p, struct shed_reply *reply)
{
    while (p->depth > 0) {
        struct shed_parser_level *level = &p->level[p->depth - 1];
        level->array->at[level->count++] = reply;
        if (level->count < level->array->size)
            return NULL;
        reply = level->array;
        p->depth--;
    }
    p->bytes = p->elements = 0;
    return reply;
}

/* ------------------------------------------------------------------ lines */

static bool read_number(const char *digits, size_t size, long long *out)
{
    const long long ten = 10;
    bool is_negative = size > 0 && *digits == '-';
    long long number = 0;

    if (size == (size_t)is_negative)
        return false;
    for (size_t i = is_negative; i < size; i++) {
        int digit = digits[i] - '0';
        if (digit < 0 || digit >= ten || number > (LLONG_MAX - digit) / ten)
            return false;
        number = number * ten + digit;
    }
    *out = is_negative ? -number : number;
    return true;
}

static enum shed_parser_result
give(struct shed_parser *p, struct shed_reply *reply, struct shed_reply **out)
{
    if (reply == NULL)
        return SHED_PARSER_NO_MEMORY;
    *out = place(p, reply);
    return *out != NULL ? SHED_PARSER_REPLY : SHED_PARSER_MORE;
}

/* Whether so many more bytes of text may be in the reply. */
static bool count_bytes(struct shed_parser *p, uint64_t size)
{
    p->bytes += size;
    return p->bytes <= SHED_PARSER_MAX_BYTES;
}

static enum shed_parser_result begin_bulk(struct shed_parser *p, uint64_t size)
{
    if (!count_bytes(p, size))
        return SHED_PARSER_INVALID;
    p->bulk = shed_reply_create_text(SHED_REPLY_STRING, NULL, (size_t)size);
    p->bulk_left = (size_t)size + LINE_END_BYTES;
    return p->bulk != NULL ? SHED_PARSER_MORE : SHED_PARSER_NO_MEMORY;
}

static enum shed_parser_result begin_array(struct shed_parser *p, uint64_t size,
                                           struct shed_reply **out)
{
    struct shed_reply *array;

    p->elements += size;
    if (p->elements > SHED_PARSER_MAX_ELEMENTS ||
        p->depth == SHED_PARSER_MAX_DEPTH)
        return SHED_PARSER_INVALID;
    array = shed_reply_create_array((size_t)size);
    if (array == NULL || size == 0)
        return give(p, array, out);
    p->level[p->depth++] = (struct shed_parser_level){array, 0};
    return SHED_PARSER_MORE;
}

/* "-1" means nil, and is the only negative length. */
static enum shed_parser_result begin(struct shed_parser *p, char type,
                                     long long size, struct shed_reply **out)
{
    if (size < -1)
        return SHED_PARSER_INVALID;
    if (size < 0)
        return give(p, shed_reply_create(SHED_REPLY_NIL, 0), out);
    return type == '$' ? begin_bulk(p, (uint64_t)size)
                       : begin_array(p, (uint64_t)size, out);
}

/* Take a line with its end. */
static enum shed_parser_result take_line(struct shed_parser *p,
                                         const char *line, size_t size,
                                         struct shed_reply **out)
{
    const char *text = line + 1;
    long long number;

    if (size < 1 + LINE_END_BYTES || line[size - LINE_END_BYTES] != '\r')
        return SHED_PARSER_INVALID;
    size -= 1 + LINE_END_BYTES;
    if ((*line == '+' || *line == '-') && !count_bytes(p, size))
        return SHED_PARSER_INVALID;
    if (*line == '+' || *line == '-')
        return give(p,
                    shed_reply_create_text(*line == '+' ? SHED_REPLY_STRING
                                                        : SHED_REPLY_ERROR,
                                           text, size),
                    out);
    if (!read_number(text, size, &number))
        return SHED_PARSER_INVALID;
    if (*line == ':')
        return give(p, shed_reply_create(SHED_REPLY_INTEGER, number), out);
    return begin(p, *line, number, out);
}

static bool is_type(char byte)
{
    return byte != '\0' && strchr("$*:+-", byte) != NULL;
}

/* A line whose end has not come is not taken. */
static enum shed_parser_result find_line(struct shed_parser *p,
                                         const char *bytes, size_t size,
                                         size_t *taken, struct shed_reply **out)
{
    const char *end = memchr(bytes, '\n', size);

    *taken = end != NULL ? (size_t)(end - bytes) + 1 : 0;
    if (!is_type(*bytes) ||
        (end != NULL ? *taken : size + 1) > SHED_PARSER_MAX_LINE)
        return SHED_PARSER_INVALID;
    return end != NULL ? take_line(p, bytes, *taken, out) : SHED_PARSER_MORE;
}

/* ----------------------------------------------------------- bulk strings */

static enum shed_parser_result fill_bulk(struct shed_parser *p,
                                         const char *bytes, size_t size,
                                         size_t *taken, struct shed_reply **out)
{
    struct shed_reply *bulk = p->bulk;
    size_t at = bulk->size + LINE_END_BYTES - p->bulk_left;
    size_t text = at < bulk->size ? bulk->size - at : 0;

    *taken = size < p->bulk_left ? size : p->bulk_left;
    if (text > 0)
        memcpy(bulk->text + at, bytes, text < *taken ? text : *taken);
    p->bulk_left -= *taken;
    if (p->bulk_left > 0)
        return SHED_PARSER_MORE;
    p->bulk = NULL;
    return give(p, bulk, out);
}

enum shed_parser_result shed_parser_take(struct shed_parser *p,
                                         const char *bytes, size_t size,
                                         size_t *taken,
                                         struct shed_reply **reply)
{
    enum shed_parser_result result = SHED_PARSER_MORE;
    size_t n = 1;

    for (*taken = 0; result == SHED_PARSER_MORE && n > 0 && *taken < size;
         *taken += n)
        result = p->bulk != NULL
                     ? fill_bulk(p, bytes + *taken, size - *taken, &n, reply)
                     : find_line(p, bytes + *taken, size - *taken, &n, reply);
    return result;
}

bool shed_parser_is_between(const struct shed_parser *p)
{
    return p->bulk == NULL && p->depth == 0;
}

void shed_parser_fini(struct shed_parser *p)
{
    shed_reply_free(p->bulk);
    while (p->depth > 0)
        shed_reply_free(p->level[--p->depth].array);
    *p = (struct shed_parser){.bulk = NULL};
}
