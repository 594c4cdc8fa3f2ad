/* One of the two servers, as the stage knows it. */
#ifndef HOTITEMS_STAGE_SERVER_H
#define HOTITEMS_STAGE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stage_child.h"

#define SERVER_ARGUMENTS_MAX 64
#define SERVER_COMMAND_BYTES 4096
#define SERVER_FILE_BYTES 48

enum server_id { SERVER_REDIS, SERVER_DATABASE, SERVERS };

enum server_state {
    SERVER_UP,      /* for all that is known */
    SERVER_STOPPED, /* by SIGSTOP; the keeper lets it continue */
    SERVER_DOWN,    /* it has ended, and is started at due_ms */
    SERVER_STARTING /* it does not answer yet */
};

struct server {
    /* set at the beginning */
    pid_t given; /* the process that an option names; 0: none */
    int pidfd;   /* of it; -1: none */
    char command[SERVER_COMMAND_BYTES];
    const char *argv[SERVER_ARGUMENTS_MAX]; /* of it; empty if unknown */
    size_t arguments;
    /* main thread only */
    struct child child;           /* what was started in its place */
    struct child keeper;          /* keeps it stopped */
    uint64_t probe_ms;            /* when it is asked whether it answers */
    char file[SERVER_FILE_BYTES]; /* Redis': what it loads; "": the first's */
    /* under the stage's mu */
    enum server_state state;
    uint64_t due_ms;
    unsigned starts;
    bool wants_stop, wants_continue;
    bool keeps_data; /* Redis, until it is up again: it has saved them */
};

#endif
