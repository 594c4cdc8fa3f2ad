/*
 * Questions to Redis: a blocking connection with a time limit for each answer,
 * on one of the library's wires. A failure ends the program with a text that
 * names the server, but never a password.
 */
#ifndef CLI_REDIS_H
#define CLI_REDIS_H

#include "cli/cli.h"
#include "cli/text.h"
#include "redis/reply.h"
#include "redis/wire.h"

struct cli_redis;

/* The options of a client that does as the command line says. */
struct shed_client_options cli_client_options(const struct cli_call *call);

/* Connect to --redis (or uri, if it is not NULL), with AUTH and SELECT. */
struct cli_redis *cli_redis_open(const struct cli_call *call, const char *uri);
void cli_redis_close(struct cli_redis *redis);

/* The server's name in texts: "host:port" or a path. */
const char *cli_redis_name(const struct cli_redis *redis);

/* Send a command; the answers come in the same order. Each word of the format
 * is a word of the command. %s, %.*s and %llu are replaced by a text, by bytes
 * and by a number. */
__attribute__((format(printf, 2, 3))) void
cli_redis_send(struct cli_redis *redis, const char *format, ...);
void cli_redis_send_args(struct cli_redis *redis, const struct shed_args *args);

/* Send a command about a key. The key replaces the word KEY. */
void cli_redis_send_key(struct cli_redis *redis, const char *words,
                        struct shed_bytes key);

/* Read the next answer, a reply to be freed and never NULL. An error ends the
 * program with a text that names what was asked; if that is NULL, an error is
 * returned as any other answer. */
struct shed_reply *cli_redis_hear(struct cli_redis *redis, const char *what);

/* The same, but an error that only says that the key is of another type, which
 * another program has made, is returned. */
struct shed_reply *cli_redis_hear_key(struct cli_redis *redis,
                                      const char *what);

/* The same; the integer of an answer, or -1, and the server's clock. */
long long cli_redis_hear_integer(struct cli_redis *redis, const char *what);
uint64_t cli_redis_hear_clock_ms(struct cli_redis *redis);

/* Read the next answer, waiting for at most ms, as for pushes; NULL when
 * nothing has come. */
struct shed_reply *cli_redis_hear_for(struct cli_redis *redis, uint64_t ms);

/* Send a command and read its answer. cli_redis_try returns an error as any
 * other answer. */
__attribute__((format(printf, 2, 3))) struct shed_reply *
cli_redis_ask(struct cli_redis *redis, const char *format, ...);
__attribute__((format(printf, 2, 3))) struct shed_reply *
cli_redis_try(struct cli_redis *redis, const char *format, ...);

/* End the program if a reply is an error. Returns: the reply. */
struct shed_reply *cli_redis_check(struct cli_redis *redis,
                                   struct shed_reply *reply, const char *what);

/* Whether the reply is an error because the user has no right to the key or the
 * command. */
bool cli_redis_is_denied(const struct shed_reply *reply);

/* The bytes of a reply; .data is NULL if it has none. */
struct shed_bytes cli_redis_bytes(const struct shed_reply *reply);

/* Whether two replies have bytes, the same ones; NULL is allowed. */
bool cli_redis_are_same(const struct shed_reply *a, const struct shed_reply *b);

/* The value of the line "name:value" of a reply to INFO, cut to fit; "" if
 * there is none, or the reply is an error. */
struct cli_text cli_info(const struct shed_reply *info, const char *name);
long long cli_info_number(const struct shed_reply *info, const char *name);

#endif
