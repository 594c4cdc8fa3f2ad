/*
 * A blocking connection to Redis, with a time limit for each answer. A failure
 * ends the program with a text that names the server, but never a password.
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

/* The server's name in texts: "host:port" or a path. */
const char *cli_redis_name(const struct cli_redis *redis);

/* Send a command; the answers come in the same order. */
void cli_redis_send(struct cli_redis *redis, const struct shed_args *args);
void cli_redis_send_words(struct cli_redis *redis, const char *words);

/* Read the next answer, which may be an error; a reply to be freed, never
 * NULL. */
struct shed_reply *cli_redis_hear(struct cli_redis *redis);

/* The same, waiting for at most ms, as for pushes; NULL when nothing has
 * come. */
struct shed_reply *cli_redis_hear_for(struct cli_redis *redis, uint64_t ms);

/* Send one command and read its answer. words are separated by single
 * spaces. */
struct shed_reply *cli_redis_call(struct cli_redis *redis,
                                  const struct shed_args *args);
struct shed_reply *cli_redis_ask(struct cli_redis *redis, const char *words);

/* End the program if the reply is an error; the text names the command. Returns
 * the reply. */
struct shed_reply *cli_redis_check(struct cli_redis *redis,
                                   struct shed_reply *reply, const char *what);

/* The same, but an error that only says that the key is of another type, which
 * another program has made, is passed on. */
struct shed_reply *cli_redis_check_key(struct cli_redis *redis,
                                       struct shed_reply *reply,
                                       const char *what);

/* Whether the reply is an error because the user has no right to the key or the
 * command. */
bool cli_redis_is_denied(const struct shed_reply *reply);

/* The server's clock from a reply to TIME, ms since 1970. */
uint64_t cli_redis_clock_ms(const struct shed_reply *time);

/* The same from the next answer, which is checked. */
uint64_t cli_redis_hear_clock_ms(struct cli_redis *redis);

/* The value of the line "name:value" of a reply to INFO, cut to fit; "" if
 * there is none, or the reply is an error. */
#define CLI_INFO_BYTES 64
const char *cli_info_field(const struct shed_reply *info, const char *name,
                           char text[CLI_INFO_BYTES]);
long long cli_info_number(const struct shed_reply *info, const char *name);

/* A number that Redis wrote as text; 0 if it is not a number. */
long long cli_redis_number(const struct shed_reply *reply);

#endif
