/*
 * A database in memory and in virtual time, under sources with an adaptive or
 * a fixed limit: its loads share a capacity, and disturb one another when there
 * are too many. Calls come at a steady rate, or whenever a load may begin.
 */
#ifndef SIM_DATABASE_H
#define SIM_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/concurrency.h"

#define SIM_LOADS_MAX 1024
#define SIM_PROCESSES_MAX 8

struct sim_database {
    /* may be changed at any time */
    double capacity; /* loads that it can work on at full speed */
    double thrash;   /* the part of its speed that is lost for each further
                        capacity of loads */
    double load_us;  /* of a lone load of one key */
    double key_us;   /* more for each further key */
    double noise;    /* the part of a load's work that varies */
    size_t keys;     /* of a load; 0: 1 to 100, at random */
    size_t odd;    /* one load in this many takes 100 times as long; 0: none */
    size_t demand; /* the most loads that are wanted at a time */
    bool is_failing; /* loads fail at once */
    /* calls per second, each wanting one load; 0: as demand says */
    double calls_per_s;
    double deadline_us; /* of a call */
    size_t queue_limit; /* calls that wait; more are refused */
    /* the limit: adaptive if fixed is 0 */
    size_t fixed;
    size_t processes; /* that share the database; 1 to SIM_PROCESSES_MAX */
    uint64_t skew_ms; /* between the wall clocks of one and the next */
    struct shed_concurrency limits[SIM_PROCESSES_MAX];
    /* the results; may be set to 0 at any time */
    size_t ended, in_time; /* loads; calls that were answered in time */
    size_t most_alive, least_limit, most_limit; /* limits: of one process */
    double probing_us;                          /* of the first process */
    /* its own */
    double now_us, next_call_us;
    uint64_t random;
    size_t begun, alive, alive_of[SIM_PROCESSES_MAX], next_process;
    struct sim_load {
        double work_us, began_us, called_us;
        size_t keys, alive, process; /* alive: of its process */
        bool is_lone;
    } loads[SIM_LOADS_MAX];
    size_t first_call, calls;
    double called_us[SIM_LOADS_MAX];
};

/* Capacity 8, loads of 20 ms, demand SIM_LOADS_MAX. */
void sim_database_init(struct sim_database *db, size_t ceiling);

/* Let time pass. The results start at 0. */
void sim_database_run(struct sim_database *db, double seconds);

#endif
