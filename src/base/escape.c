/* Bytes as printable text. */
#include <stdbool.h>
#include <stdio.h>

#include <snowshed/snowshed.h>

size_t shed_escape(struct shed_bytes bytes, char *buffer, size_t capacity)
{
    const unsigned char *b = bytes.data;
    size_t length = 0;

    for (size_t i = 0; i < bytes.size; i++) {
        bool is_printable = b[i] >= ' ' && b[i] <= '~';
        char text[sizeof("\\xff")];
        int size = snprintf(text, sizeof(text),
                            b[i] == '\\'   ? "\\%c"
                            : is_printable ? "%c"
                                           : "\\x%02x",
                            b[i]);
        for (int j = 0; j < size; j++, length++)
            if (length < capacity)
                buffer[length] = text[j];
    }
    if (capacity > 0)
        buffer[length < capacity ? length : capacity - 1] = '\0';
    return length;
}
