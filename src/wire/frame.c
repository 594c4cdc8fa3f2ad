/* The bounds of replies. Its one invariant: no sum here can overflow, because
 * the stream ends at a number over its limit. */
#include "wire/frame.h"

#include <string.h>

/* An element is complete. After the last one, so is the reply. */
static void end_element(struct shed_frame *f)
{
    f->part = SHED_FRAME_TYPE;
    if (--f->open == 0)
        f->bytes = f->elements = 0;
}

static bool begin_element(struct shed_frame *f, char type)
{
    f->part = SHED_FRAME_LINE;
    f->type = type;
    f->is_negative = false;
    f->digits = 0;
    f->number = f->line = 0;
    if (f->open == 0)
        f->open = 1;
    return type != '\0' && strchr("+-:$*", type) != NULL;
}

static bool end_bulk_head(struct shed_frame *f)
{
    f->bytes += f->number;
    f->left = f->number + strlen("\r\n");
    f->part = SHED_FRAME_BULK;
    return f->bytes <= SHED_FRAME_MAX_BYTES;
}

static bool end_array_head(struct shed_frame *f)
{
    f->elements += f->number;
    f->open += f->number;
    end_element(f);
    return f->elements <= SHED_FRAME_MAX_ELEMENTS;
}

static bool has_length(const struct shed_frame *f)
{
    return f->type == '$' || f->type == '*';
}

/* "-1" means nil, and is the only negative length. */
static bool end_line(struct shed_frame *f)
{
    if (!has_length(f)) {
        end_element(f);
        return true;
    }
    if (f->digits == 0 || (f->is_negative && f->number != 1))
        return false;
    if (f->is_negative) {
        end_element(f);
        return true;
    }
    return f->type == '$' ? end_bulk_head(f) : end_array_head(f);
}

/* Take one byte of a length. */
static bool take_digit(struct shed_frame *f, char byte)
{
    const unsigned ten = 10;

    if (byte == '\r')
        return true;
    if (byte == '-' && f->line == 1) {
        f->is_negative = true;
        return true;
    }
    if (byte < '0' || byte > '9')
        return false;
    f->digits++;
    f->number = f->number * ten + (unsigned)(byte - '0');
    return f->number <= SHED_FRAME_MAX_BYTES;
}

/* Returns: how many bytes were taken; 0 if the stream must end. */
static size_t take_line(struct shed_frame *f, const char *bytes, size_t size)
{
    const char *end = memchr(bytes, '\n', size);
    size_t n = end != NULL ? (size_t)(end - bytes) : size;

    if (f->line + n > SHED_FRAME_MAX_LINE)
        return 0;
    for (size_t i = 0; has_length(f) && i < n; i++) {
        f->line++;
        if (!take_digit(f, bytes[i]))
            return 0;
    }
    if (!has_length(f))
        f->line += n;
    if (end == NULL)
        return n;
    return end_line(f) ? n + 1 : 0;
}

static size_t take_bulk(struct shed_frame *f, size_t size)
{
    size_t n = size < f->left ? size : (size_t)f->left;

    f->left -= n;
    if (f->left == 0)
        end_element(f);
    return n;
}

bool shed_frame_take(struct shed_frame *f, const char *bytes, size_t size)
{
    while (size > 0) {
        size_t n = 1;
        if (f->part == SHED_FRAME_BULK)
            n = take_bulk(f, size);
        else if (f->part == SHED_FRAME_LINE)
            n = take_line(f, bytes, size);
        else if (!begin_element(f, *bytes))
            return false;
        if (n == 0)
            return false;
        bytes += n;
        size -= n;
    }
    return true;
}
