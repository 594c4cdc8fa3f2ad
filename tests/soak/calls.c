/* The calls of a process of the soak. */
#include "soak/calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <snowshed/mysql.h>

#include "base/clock.h"
#include "support/random.h"

enum { TOLD_MAX = 10 /* calls that are told of */ };

uint64_t soak_draw(struct soak_thread *t, uint64_t below)
{
    return random_next(&t->random) % below;
}

bool soak_is_over(const struct soak_worker *w)
{
    return atomic_load(&w->history->is_over);
}

struct shed_bytes soak_name(unsigned key, char text[SOAK_TEXT_BYTES])
{
    (void)snprintf(text, SOAK_TEXT_BYTES, "%u", key + 1);
    return shed_str(text);
}

struct shed_bytes soak_tag(unsigned tag, char text[SOAK_TEXT_BYTES])
{
    (void)snprintf(text, SOAK_TEXT_BYTES, "tag%u", tag);
    return shed_str(text);
}

struct soak_try soak_begin_call(const struct soak_worker *w,
                                enum soak_work work)
{
    return (struct soak_try){.counted = soak_begin(&w->history->account, work,
                                                   w->number, shed_now_ms())};
}

bool soak_end_call(const struct soak_worker *w, const struct soak_try *call,
                   enum shed_code code)
{
    struct soak_account *account = &w->history->account;
    uint64_t now_ms = shed_now_ms();
    enum soak_end how = soak_end(account, &call->counted, code, now_ms);

    if (how != SOAK_FINE &&
        atomic_load(&account->unexplained) + atomic_load(&account->late) <=
            TOLD_MAX)
        fprintf(stderr,
                "soak: process %u: one of its %s %s, after %llu ms: %s: %s\n",
                w->number, soak_works[call->counted.work],
                how == SOAK_LATE ? "was late" : "failed for no known reason",
                (unsigned long long)(now_ms - call->counted.begun_ms),
                shed_code_name(code), call->err.reason);
    return code == SHED_OK;
}

/* ------------------------------------------------------------------ read */

static unsigned version_of(const struct shed_value *value)
{
    char text[24] = "";
    size_t size = value->size;

    if (size < sizeof(text) && size > 0)
        memcpy(text, value->data, size);
    return (unsigned)strtoul(text, NULL, 10);
}

/* Half of the calls have no options. A row of the long cache is not loaded
 * again because it is old: that is left to the invalidations. */
static struct shed_get_options draw_options(struct soak_thread *t, unsigned key)
{
    struct shed_get_options o = SHED_GET_OPTIONS_INIT;

    o.timeout_ms = SOAK_TIMEOUT_MS;
    switch (soak_draw(t, 10)) {
    case 0:
        o.max_age_ms = soak_cache_of(key) == SOAK_LONG ? 0 : SOAK_MAX_AGE_MS;
        break;
    case 1:
        o.only_cached = 1;
        break;
    case 2:
        o.allow_stale = SHED_STALE_NEVER;
        break;
    case 3:
        o.allow_stale = SHED_STALE_ALLOWED;
        break;
    case 4:
        o.soft_timeout_ms = 1 + soak_draw(t, 30);
    }
    return o;
}

static void read_row(struct soak_thread *t, unsigned key)
{
    const struct soak_worker *w = t->worker;
    struct shed_get_options asked = draw_options(t, key);
    struct soak_floor floor = soak_floor(w->history, key);
    struct shed_value *value = NULL;
    char text[SOAK_TEXT_BYTES];
    struct soak_try call = soak_begin_call(w, SOAK_READ);

    floor.is_keeper = w->is_keeper;
    floor.own = atomic_load(&w->own[key]);
    floor.age_ms = floor.begun_ms - w->begun_ms;
    if (soak_end_call(w, &call,
                      shed_get(w->caches[soak_cache_of(key)],
                               soak_name(key, text), &asked, &value,
                               &call.err))) {
        soak_count_answer(&w->history->account, w->number, value);
        soak_judge(w->history, key, &floor, &asked, version_of(value), value);
    }
    shed_value_unref(value);
}

/* A key without a row never gets one. */
static void read_absent(const struct soak_worker *w)
{
    struct shed_get_options options = SHED_GET_OPTIONS_INIT;
    struct shed_value *value = NULL;
    char text[SOAK_TEXT_BYTES];
    struct soak_try call = soak_begin_call(w, SOAK_READ);

    options.timeout_ms = SOAK_TIMEOUT_MS;
    if (soak_end_call(w, &call,
                      shed_get(w->caches[SOAK_SHORT],
                               soak_name(SOAK_KEYS, text), &options, &value,
                               &call.err))) {
        soak_count_answer(&w->history->account, w->number, value);
        if (value->kind != SHED_KIND_ABSENT)
            soak_report(w->history, SOAK_UNKNOWN, SOAK_KEYS, version_of(value),
                        0);
    }
    shed_value_unref(value);
}

void soak_read(struct soak_thread *t, unsigned key)
{
    if (key < SOAK_KEYS)
        read_row(t, key);
    else
        read_absent(t->worker);
}

/* -------------------------------------------------------------- database */

bool soak_query(const struct soak_worker *w, MYSQL **mysql, const char *sql)
{
    while (*mysql == NULL || mysql_query(*mysql, sql) != 0) {
        if (soak_is_over(w))
            return false;
        if (*mysql != NULL)
            mysql_close(*mysql);
        *mysql = mysql_init(NULL);
        if (*mysql != NULL && shed_mysql_connect(*mysql, w->place->mysql_uri,
                                                 NULL, 0, NULL) != SHED_OK)
            usleep(SOAK_PAUSE_US);
    }
    return true;
}
