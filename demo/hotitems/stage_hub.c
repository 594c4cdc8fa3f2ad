/* Events as they are sent. The last marks are kept for pages that come later.
 */
#include "stage_hub.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RING 128
#define MARKS 50
#define TEXT_BYTES 200

uint64_t hub_time_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

struct sse *hub_new(void)
{
    static const struct sse_options options = {
        .greeting = "retry: 1000\n: what is done to the lanes\n\n",
        .ring = RING,
        .kept = MARKS,
        .listeners_max = HUB_LISTENERS_MAX};

    return sse_new(&options);
}

/* As it is sent; NULL: out of memory. */
static char *make_event(const char *event, json_t *data)
{
    char *json = json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII);
    size_t size = json != NULL ? strlen(json) + strlen(event) + 32 : 0;
    char *text = json != NULL ? malloc(size) : NULL;

    if (text != NULL)
        (void)snprintf(text, size, "event: %s\ndata: %s\n\n", event, json);
    free(json);
    return text;
}

void hub_tell(struct sse *hub, const char *event, json_t *data)
{
    char *text = data != NULL ? make_event(event, data) : NULL;

    json_decref(data);
    if (text != NULL)
        sse_publish(hub, text, strlen(text), strcmp(event, "mark") == 0);
    free(text);
}

void hub_mark(struct sse *hub, const char *action, uint64_t time_ms,
              uint64_t id, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;
    json_t *data;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    data = json_pack("{s:I,s:s,s:s}", "time_ms", (json_int_t)time_ms, "action",
                     action, "text", text);
    if (data != NULL && id != 0)
        (void)json_object_set_new(data, "id", json_integer((json_int_t)id));
    hub_tell(hub, "mark", data);
}
