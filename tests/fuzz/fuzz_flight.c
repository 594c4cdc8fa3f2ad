/*
 * Any bytes as the replies to a flight's calls, and to reads of the log of
 * tags: each becomes an event that the flight's machine can have at that
 * point, and an entry, an error or a position that can be used; or, to the GET
 * before an acquire, leaves it to that. The first byte chooses the call, and
 * whether entries get the right checksum; the rest are the replies, and where
 * they end the connection is lost.
 */
#include <string.h>

#include "base/value.h"
#include "flight/flight_task.h"
#include "fuzz/forge.h"

#define TAGS_MAX 4
#define SERVER_MS 1700000000000U

enum { IS_FORGED = 4, IS_WITHOUT_CLOCK = 8, IS_LOOK = 16 };

static const struct shed_bytes key = {"t:{k}", 5};
static const struct shed_bytes refresh_key = {"t:{k}:refresh", 13};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* ------------------------------------------- in place of a session's parts */

static uint64_t server_ms;

uint64_t __wrap_shed_client_server_ms(struct shed_client *client,
                                      struct shed_bytes at);
void __wrap_shed_events_tell(struct shed_events *events,
                             const struct shed_event *event);

uint64_t __wrap_shed_client_server_ms(struct shed_client *client,
                                      struct shed_bytes at)
{
    (void)client;
    (void)at;
    return server_ms;
}

void __wrap_shed_events_tell(struct shed_events *events,
                             const struct shed_event *event)
{
    (void)events;
    check(event->reason != NULL && event->reason[0] != '\0');
}

/* --------------------------------------------------------------- the flight */

/* Look at every byte, for the sanitizers. */
static void check_entry(const struct shed_value *entry)
{
    uint8_t sum = 0;

    check(entry != NULL && shed_value_header(entry) != NULL);
    for (size_t i = 0; i < entry->size; i++)
        sum ^= ((const uint8_t *)entry->data)[i];
    check(sum == 0 || entry->size > 0);
    check(entry->kind == SHED_KIND_ROW || entry->size == 0);
}

static void check_error(const struct shed_flight_task *t)
{
    check(t->error.code != SHED_OK && t->error.reason[0] != '\0');
}

static bool is_expected(enum shed_flight_send sent,
                        enum shed_flight_event_type type)
{
    switch (type) {
    case SHED_EV_TROUBLE:
        return true;
    case SHED_EV_LEAD:
    case SHED_EV_HIT:
    case SHED_EV_CORRUPT:
    case SHED_EV_MARKER:
    case SHED_EV_WAIT:
        return sent == SHED_SEND_ACQUIRE;
    case SHED_EV_STORED:
    case SHED_EV_SUPERSEDED:
    case SHED_EV_INVALIDATED:
        return sent == SHED_SEND_PUBLISH;
    default:
        return type == SHED_EV_ENDED && sent == SHED_SEND_FAIL;
    }
}

static void check_event(const struct shed_flight_task *t,
                        struct shed_flight_event event)
{
    check(is_expected(t->sent, event.type));
    check(t->seen_size <= sizeof(t->seen));
    if (event.type == SHED_EV_HIT || event.type == SHED_EV_SUPERSEDED)
        check_entry(t->entry);
    if (event.type == SHED_EV_CORRUPT || event.type == SHED_EV_MARKER ||
        (event.type == SHED_EV_TROUBLE && t->sent != SHED_SEND_FAIL))
        check_error(t);
    if (event.type == SHED_EV_MARKER)
        check(t->error.code == SHED_ESOURCE || t->error.code == SHED_ETOOBIG ||
              t->error.code == SHED_ELOST);
    if (event.type == SHED_EV_LEAD)
        check(t->seen_size == 0);
}

/* The entry in a reply, if it is long enough to be one. */
static void forge_entry(const struct shed_reply *reply, bool is_marker)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(shed_reply_at(reply, 1), &size);

    if (bytes == NULL || size < SHED_ENTRY_HEADER_BYTES)
        return;
    /* the reply is ours, though its reader only lends it */
    (void)forge(is_marker ? refresh_key : key, (uint8_t *)(uintptr_t)bytes,
                size);
}

static const struct shed_error lost = {SHED_EREDIS, "lost"};

static struct shed_flight_task make_task(enum shed_flight_send sent)
{
    static struct shed_client client;
    static struct shed_cache cache = {.client = &client, .name = "t"};
    static struct shed_flights flights = {.cache = &cache};

    return (struct shed_flight_task){.flights = &flights,
                                     .key = key,
                                     .refresh_key = refresh_key,
                                     .sent = sent};
}

static void read_flight(struct stream *stream, enum shed_flight_send sent,
                        bool is_forged)
{
    struct shed_flight_task t = make_task(sent);
    struct shed_call_result result = {.trouble = SHED_TROUBLE_DOWN,
                                      .why = &lost};

    do {
        result.reply = stream_next(stream);
        if (is_forged)
            forge_entry(result.reply, shed_reply_count(result.reply) > 2);
        check_event(&t, shed_flight_reply_event(&t, &result));
        shed_reply_free(result.reply);
    } while (result.reply != NULL);
    shed_value_unref(t.entry);
}

/* To the GET before an acquire. */
static void read_look(struct stream *stream, bool is_forged)
{
    struct shed_flight_task t = make_task(SHED_SEND_ACQUIRE);
    struct shed_flight_event event;
    bool is_taken;
    struct shed_call_result result = {
        .is_taken = &is_taken, .trouble = SHED_TROUBLE_DOWN, .why = &lost};

    do {
        size_t size = 0;
        const char *bytes;
        result.reply = stream_next(stream);
        bytes = shed_reply_bytes(result.reply, &size);
        if (is_forged && bytes != NULL && size >= SHED_ENTRY_HEADER_BYTES)
            (void)forge(key, (uint8_t *)(uintptr_t)bytes, size);
        is_taken = false;
        if (shed_flight_reply_decides(&t, &result, &event))
            check_event(&t, event);
        else
            check(result.reply != NULL);
        if (!is_taken)
            shed_reply_free(result.reply);
    } while (result.reply != NULL);
    shed_value_unref(t.entry);
}

/* ------------------------------------------------------------ the log of
 * tags */

static void read_log(struct stream *stream)
{
    static struct shed_tags tags;
    struct shed_reply *reply;
    uint64_t position = 0, before = 0;

    shed_tags_init(&tags, TAGS_MAX);
    while ((reply = stream_next(stream)) != NULL) {
        enum shed_tag_heard heard =
            shed_tag_log_hear(&tags, &position, 0, reply);
        check(heard <= SHED_TAG_HEARD_OTHER);
        /* a part that does not lead on would be asked for without end */
        check(heard != SHED_TAG_HEARD_PART || position > before);
        check(position < SHED_TAGS_POSITION_END);
        check(tags.count <= TAGS_MAX && tags.newest < SHED_TAGS_POSITION_END);
        before = position;
        shed_reply_free(reply);
    }
    shed_tags_fini(&tags);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const enum shed_flight_send calls[] = {
        SHED_SEND_ACQUIRE, SHED_SEND_PUBLISH, SHED_SEND_FAIL};
    struct stream stream;
    size_t choice;

    if (size < 2)
        return 0;
    choice = bytes[0] % 4;
    server_ms = (bytes[0] & IS_WITHOUT_CLOCK) != 0 ? 0 : SERVER_MS;
    stream_open(&stream);
    stream_feed(&stream, bytes + 1, size - 1);
    if (bytes[0] & IS_LOOK)
        read_look(&stream, (bytes[0] & IS_FORGED) != 0);
    else if (choice < sizeof(calls) / sizeof(*calls))
        read_flight(&stream, calls[choice], (bytes[0] & IS_FORGED) != 0);
    else
        read_log(&stream);
    stream_close(&stream);
    return 0;
}
