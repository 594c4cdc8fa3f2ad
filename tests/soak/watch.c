/* The thread of the soak that counts the loads in the database. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "soak/calls.h"
#include "support/testing.h"

enum {
    LOOK_EVERY_US = 3000,
    BUSY_MS = 100 /* a longer pause is trouble */
};

#define US_PER_MS 1000.0

/* Other statements have no SLEEP, and this one is not its own. */
#define LOADS                                                                  \
    "SELECT time_ms FROM information_schema.processlist WHERE command = "      \
    "'Execute' AND info LIKE '%SLEEP(RAND%' AND id <> CONNECTION_ID()"

/* Count the loads that were alive when this was called: the list is no snapshot
 * of one moment, but all that had begun before it and are in it were alive
 * then. Returns: false: the list cannot be read. */
static bool count_loads(const struct soak_worker *w, MYSQL **mysql,
                        unsigned *count, uint64_t *oldest_ms)
{
    uint64_t begun_us = shed_now_us();
    MYSQL_RES *result;
    double taken_ms;
    MYSQL_ROW row;

    *count = 0;
    *oldest_ms = 0;
    if (!soak_query(w, mysql, LOADS))
        return false;
    result = mysql_store_result(*mysql);
    taken_ms = (double)(shed_now_us() - begun_us) / US_PER_MS;
    if (result == NULL)
        return false;
    while ((row = mysql_fetch_row(result)) != NULL) {
        double age_ms = row[0] != NULL ? strtod(row[0], NULL) : 0;
        if (age_ms <= taken_ms)
            continue;
        (*count)++;
        if (age_ms > (double)*oldest_ms)
            *oldest_ms = (uint64_t)age_ms + 1;
    }
    mysql_free_result(result);
    return true;
}

/* Remember a pause between looks that says that this machine stood still, or
 * was busy with something else. */
static void note_stall(struct soak_history *h, uint64_t looked_ms,
                       uint64_t now_ms)
{
    if (looked_ms != 0 && now_ms > looked_ms + scaled_ms(BUSY_MS))
        soak_trouble_end(&h->troubles,
                         soak_trouble_begin(&h->troubles, looked_ms), now_ms);
}

void *soak_watch_on(void *arg)
{
    const struct soak_worker *w = ((struct soak_thread *)arg)->worker;
    struct soak_watch watch = {0};
    uint64_t oldest_ms, now_ms;
    MYSQL *mysql = NULL;
    struct soak_history *h = w->history;
    unsigned count, excess;

    while (!soak_is_over(w)) {
        now_ms = shed_now_ms();
        note_stall(h, watch.looked_ms, now_ms);
        if (!count_loads(w, &mysql, &count, &oldest_ms))
            continue;
        excess = soak_fleet_look(&h->fleet, &watch, count, oldest_ms, now_ms);
        if (excess > 0) {
            fprintf(stderr, "soak: %u loads at a time, not %d\n", excess,
                    (int)SOAK_FLEET_LOADS);
            soak_report(h, SOAK_LOADS, 0, 0, 0);
        }
        usleep(LOOK_EVERY_US);
    }
    if (mysql != NULL)
        mysql_close(mysql);
    return NULL;
}
