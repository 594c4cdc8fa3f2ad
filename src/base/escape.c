/* Bytes as printable text. */
#include <snowshed/snowshed.h>

/* Write a byte as text; not terminated. Returns: its size. */
static size_t escape(unsigned char byte, char text[4])
{
    static const char digits[] = "0123456789abcdef";

    text[0] = '\\';
    if (byte == '\\') {
        text[1] = '\\';
        return 2;
    }
    if (byte >= ' ' && byte <= '~') {
        text[0] = (char)byte;
        return 1;
    }
    text[1] = 'x';
    text[2] = digits[byte >> 4];
    text[3] = digits[byte & 0xf];
    return 4;
}

size_t shed_escape(struct shed_bytes bytes, char *buffer, size_t capacity)
{
    const unsigned char *b = bytes.data;
    size_t length = 0;

    for (size_t i = 0; i < bytes.size; i++) {
        char text[4];
        size_t size = escape(b[i], text);
        for (size_t j = 0; j < size; j++, length++)
            if (length < capacity)
                buffer[length] = text[j];
    }
    if (capacity > 0)
        buffer[length < capacity ? length : capacity - 1] = '\0';
    return length;
}
