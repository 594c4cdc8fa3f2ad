/* The database's capacity, by sql/capacity.sql. */
#include <inttypes.h>
#include <mysql.h>
#include <stdio.h>
#include <string.h>

#include "common/place.h"
#include "stage_actions.h"

/* A CALL has a status after its last result. */
static bool call(MYSQL *mysql, const char *text)
{
    int more;

    if (mysql_query(mysql, text) != 0)
        return false;
    do {
        MYSQL_RES *rows = mysql_store_result(mysql);
        mysql_free_result(rows);
        more = mysql_next_result(mysql);
    } while (more == 0);
    return more < 0;
}

static bool set_lanes(MYSQL *mysql, uint64_t slots, uint64_t cost_ms)
{
    char text[160];

    for (size_t i = 0; i < STAGE_LANES; i++) {
        (void)snprintf(text, sizeof(text),
                       "CALL set_capacity('%s', %" PRIu64 ", %" PRIu64 ")",
                       stage_lane_names[i], slots, cost_ms * 1000);
        if (!call(mysql, text))
            return false;
    }
    return true;
}

bool database_set_cost(const struct stage_options *o, uint64_t cost_ms,
                       char *why, size_t size)
{
    struct shed_error err = {SHED_OK, "out of memory"};
    MYSQL *mysql = mysql_init(NULL);
    bool is_set = false;

    if (mysql != NULL && place_connect(mysql, 0, &err) == SHED_OK) {
        is_set = set_lanes(mysql, o->db_slots, cost_ms);
        (void)snprintf(err.reason, sizeof(err.reason), "MySQL: %s",
                       mysql_error(mysql));
    }
    if (!is_set)
        (void)snprintf(why, size, "%.250s (is sql/capacity.sql loaded?)",
                       err.reason);
    mysql_close(mysql);
    mysql_thread_end();
    return is_set;
}
