/*
 * The stage: three lanes under the same traffic, each with instances of the
 * service that read in a way of their own, and the buttons that make trouble.
 *
 * The main thread starts and watches all processes. Requests run on threads of
 * the HTTP server; what both see is under mu.
 */
#ifndef HOTITEMS_STAGE_H
#define HOTITEMS_STAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <hiredis/hiredis.h>
#include <jansson.h>

#include "http.h"
#include "stage_child.h"
#include "stage_feed.h"
#include "stage_hub.h"
#include "stage_server.h"

#define STAGE_LANES 3
#define STAGE_INSTANCES_MAX 4 /* of a lane */
#define STAGE_CLIENTS_MAX 1000
#define STAGE_SKEW_MAX 2.0
#define STAGE_TEXT_BYTES 200
#define STAGE_PROCESS_BYTES 40 /* the library's name for a process */

enum stage_lane { LANE_NONE, LANE_SETNX, LANE_SNOWSHED };
extern const char *const stage_lane_names[STAGE_LANES];

struct stage_options {
    const char *redis, *mysql, *hotitems, *snowshed;
    const char *logs; /* NULL: the instances' logs are lost */
    uint64_t port, clients, think_ms, items, instances, redis_pid, db_pid;
    uint64_t db_slots, db_cost_ms, outage_s;
    uint64_t tour_s; /* 0: until it is ended */
    double skew;
    /* passed on to the instances */
    uint64_t timeout_ms, ttl_ms, connections, db_connections, read_connections;
    uint64_t loads, refresh_after_pct, stale_ms, stale_if_error_ms;
    uint64_t soft_timeout_ms, adaptive_loads;
    uint64_t breaker_failure_pct, breaker_open_ms, breaker_open_max_ms;
    uint64_t redis_breaker_failure_pct;
};

enum instance_state {
    INSTANCE_DOWN,     /* is started at retry_ms */
    INSTANCE_STARTING, /* has not printed its address */
    INSTANCE_UP
};

/* One instance of the service, its counters, and the clients that ask it. */
struct instance {
    /* set at the beginning */
    enum stage_lane lane;
    unsigned number;
    int log; /* where its log goes; -1: lost */
    /* written by the main thread, under mu */
    enum instance_state state;
    struct child service;
    uint16_t port;
    uint64_t changed_ms; /* when it got into its state */
    uint64_t retry_ms;
    unsigned failures; /* in a row */
    unsigned starts;
    struct sample sample;
    char process[STAGE_PROCESS_BYTES]; /* "" until it is known */
    /* main thread only */
    struct feed feed;
    char line[STAGE_TEXT_BYTES]; /* of its output, until it is up */
    char last_line[STAGE_TEXT_BYTES];
    size_t line_size;
    struct child clients;
    unsigned clients_made; /* the settings they were started with */
    uint64_t clients_retry_ms;
    struct child absent; /* clients that ask for items that do not exist */
    unsigned absent_made;
};

struct stage {
    struct stage_options options;
    struct instance instance[STAGE_LANES * STAGE_INSTANCES_MAX];
    size_t instances;
    struct http *http;
    struct sse *hub;
    struct actions *actions;
    int wake;   /* eventfd, to wake the main thread */
    int script; /* the traffic's */
    struct server server[SERVERS];
    pthread_t warmer, guide; /* main thread */
    bool has_warmer, has_guide;
    bool is_toured; /* the guide's, until it is joined */
    pthread_mutex_t mu;
    pthread_cond_t changed; /* state of an instance or server, a sample */
    /* under mu */
    uint64_t clients;
    double skew;
    unsigned settings;      /* their version */
    unsigned absent_wanted; /* how often the button was pressed */
    bool is_warm;           /* there may be clients */
    bool is_cold;           /* warming has failed */
    bool is_ending;
};

static inline void stage_lock(struct stage *stage)
{
    (void)pthread_mutex_lock(&stage->mu);
}

static inline void stage_unlock(struct stage *stage)
{
    (void)pthread_mutex_unlock(&stage->mu);
}

static inline bool stage_is_ending(struct stage *stage)
{
    bool is_ending;

    stage_lock(stage);
    is_ending = stage->is_ending;
    stage_unlock(stage);
    return is_ending;
}

/* Make the main thread look at once. */
void stage_wake(struct stage *stage);

/* Wait for changed until http_now_ms() is until_ms. Under mu. Returns false
 * then. */
bool stage_wait_locked(struct stage *stage, uint64_t until_ms);

/* ------------------------------------------------------ stage_lanes.c */

#define LANES_FDS_MAX (3 * STAGE_LANES * STAGE_INSTANCES_MAX)

/* Returns false, with why, if a log cannot be written. */
bool lanes_init(struct stage *stage, char *why, size_t size);

/* Main thread: start what is due, read what is there, notice what has ended.
 * Returns false when an instance cannot be started at all. */
struct pollfd;
bool lanes_tick(struct stage *stage);
size_t lanes_poll(struct stage *stage, struct pollfd *fds);
void lanes_end(struct stage *stage);

bool lanes_are_up(struct stage *stage);

/* As /lanes says it; no lock is held. */
json_t *lanes_json(struct stage *stage);

/* SIGKILL an instance, if its process is still this one (0: any). */
bool lanes_kill(struct stage *stage, struct instance *instance, pid_t pid);

/* ---------------------------------------------------- stage_traffic.c */

#define TRAFFIC_ABSENT 2000 /* ids of absent items that a lane is asked for */

/* Whether wrk is there. */
bool traffic_can_start(void);

/* A file with the script, or -1. */
int traffic_open_script(void);

/* Main thread: start, restart or end the clients of an instance. */
void traffic_tick(struct stage *stage, struct instance *instance,
                  uint64_t now_ms);
void traffic_kill(struct instance *instance);

/* The id of the n-th most wanted item, from 0. */
uint64_t traffic_item(const struct stage *stage, uint64_t rank);

/* --------------------------------------------------- stage_actions.c */

struct action_result {
    unsigned status;
    char text[STAGE_TEXT_BYTES]; /* what was done, or why not */
};

struct actions *actions_new(struct stage *stage, char *why, size_t size);
void actions_free(struct actions *actions); /* restores what is changed */

json_t *actions_json(struct stage *stage);
bool actions_exists(const char *name);
void actions_run(struct stage *stage, const char *name,
                 struct action_result *result);

/* ---------------------------------------------------- stage_routes.c */

/* A http_handler whose user is the stage. */
void stage_handle(void *stage, const struct http_request *request,
                  struct http_reply *reply);

/* ------------------------------------------------------ stage_warm.c */

/* A thread that reads all items in each lane, and then sets is_warm or is_cold.
 */
bool warm_start(struct stage *stage);
void warm_stop(struct stage *stage);

/* ------------------------------------------------------ stage_tour.c */

/* A thread that makes trouble for options.tour_s seconds, prints the table, and
 * sets is_ending. */
bool tour_start(struct stage *stage);

/* Wait for it. Returns false if it failed. */
bool tour_stop(struct stage *stage);

#endif
