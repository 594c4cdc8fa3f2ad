/* A ready-made on_log. */
#include <stdio.h>

#include <snowshed/snowshed.h>

/* One call, so that lines of several threads do not mix. */
void shed_log_stderr(void *user, enum shed_log_level level, const char *text)
{
    (void)user;
    (void)fprintf(stderr, "snowshed: %s: %s\n", shed_log_level_name(level),
                  text);
}
