/* A ready-made on_log. */
#include <stdio.h>

#include <snowshed/snowshed.h>

static const char *name_of(enum shed_log_level level)
{
    switch (level) {
    case SHED_LOG_INFO:
        return "info";
    case SHED_LOG_WARNING:
        return "warning";
    case SHED_LOG_ERROR:
        return "error";
    }
    return "unknown level";
}

/* One call, so that lines of several threads do not mix. */
void shed_log_stderr(void *user, enum shed_log_level level, const char *text)
{
    (void)user;
    (void)fprintf(stderr, "snowshed: %s: %s\n", name_of(level), text);
}
