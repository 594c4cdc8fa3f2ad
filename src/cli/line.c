/* Lines with a name and a value. In a file of its own, because clang-tidy 14
 * overlooks va_start in a longer file. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/text.h"

void cli_field(const char *name)
{
    printf("  %-10s ", name);
}

void cli_line(const char *name, const char *format, ...)
{
    char text[512];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    cli_field(name);
    (void)puts(text);
}
