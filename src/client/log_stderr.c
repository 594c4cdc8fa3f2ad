/* A ready-made on_log. */
#include <stdio.h>

#include <snowshed/snowshed.h>

static const char *const names[] = {[SHED_LOG_INFO] = "info",
                                    [SHED_LOG_WARNING] = "warning",
                                    [SHED_LOG_ERROR] = "error"};

/* One call, so that lines of several threads do not mix. */
void shed_log_stderr(void *user, enum shed_log_level level, const char *text)
{
    (void)user;
    (void)fprintf(stderr, "snowshed: %s: %s\n",
                  (size_t)level < sizeof(names) / sizeof(*names)
                      ? names[level]
                      : "unknown level",
                  text);
}
