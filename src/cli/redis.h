/*
 * A connection to Redis that blocks, with a time limit for each answer. A
 * failure of it ends the program: it says which server, and never a password.
 */
#ifndef CLI_REDIS_H
#define CLI_REDIS_H

#include "cli/cli.h"
#include "redis/reply.h"
#include "redis/wire.h"

struct cli_redis;

/* Connect to --redis (or uri, if it is not NULL), with AUTH and SELECT. */
struct cli_redis *cli_redis_open(const struct cli_call *call, const char *uri);
void cli_redis_close(struct cli_redis *redis);

/* The server for texts, "host:port" or a path. */
const char *cli_redis_name(const struct cli_redis *redis);

/* Send a command; the answers come in the same order. */
void cli_redis_send(struct cli_redis *redis, const struct shed_args *args);
void cli_redis_send_words(struct cli_redis *redis, const char *words);

/* The next answer, which may be an error; a reply to be freed, never NULL. */
struct shed_reply *cli_redis_hear(struct cli_redis *redis);

/* The same for at most ms, as of pushes: NULL when nothing has come by then. */
struct shed_reply *cli_redis_hear_for(struct cli_redis *redis, uint64_t ms);

/* One command and its answer. words are separated by single spaces. */
struct shed_reply *cli_redis_call(struct cli_redis *redis,
                                  const struct shed_args *args);
struct shed_reply *cli_redis_ask(struct cli_redis *redis, const char *words);

/* End the program if the reply is an error, saying what was asked. Returns the
 * reply. */
struct shed_reply *cli_redis_check(struct cli_redis *redis,
                                   struct shed_reply *reply, const char *what);

/* The server's clock, ms since 1970: of a reply to TIME. */
uint64_t cli_redis_clock_ms(const struct shed_reply *time);

/* A number that Redis wrote as text; 0 where it is none. */
long long cli_redis_number(const struct shed_reply *reply);

#endif
