/*
 * Questions to Redis: one server, or the primaries of a cluster, over a
 * blocking connection to each, with a time limit for each answer. A failure
 * ends the program with a text that names the server, but never a password.
 *
 * A command goes to the server that was chosen last: by its key
 * (cli_redis_about, and cli_redis_send_key for the commands behind it, too), or
 * by its number (cli_redis_next).
 */
#ifndef CLI_REDIS_H
#define CLI_REDIS_H

#include "cli/cli.h"
#include "cli/text.h"
#include "cli/server.h"
#include "client/cluster_map.h"

struct cli_redis;

/* Set call->redis, for the call's URI. Of a cluster the map of its slots is
 * learnt from the first node that answers. A server is connected, with AUTH and
 * SELECT, when it is first asked. */
void cli_redis_open(struct cli_call *call);

/* NULL is allowed. */
void cli_redis_close(struct cli_redis *redis);

/* What the URI names, in texts: "host:port", a path, the name of a primary, or
 * the seeds of a cluster. */
const char *cli_redis_name(const struct cli_redis *redis);

/* ----------------------------------------------------------- which server */

bool cli_redis_is_cluster(const struct cli_redis *redis);

/* Choose the server that has a key. */
void cli_redis_about(struct cli_redis *redis, struct shed_bytes key);

/* Choose the first server whose number is *i or more, and set *i to that.
 * Returns: false: there is none.
 *
 *     for (size_t i = 0; cli_redis_next(redis, &i); i++)
 *         ask(redis);
 */
bool cli_redis_next(struct cli_redis *redis, size_t *i);

/* Numbers are below this. */
#define CLI_REDIS_MAX SHED_CLUSTER_NODES_MAX

/* The chosen server, for questions whose failure does not end the program; and
 * a further connection to it, which is to be destroyed. */
struct cli_server *cli_redis_server(struct cli_redis *redis);
struct cli_server *cli_redis_connect(const struct cli_redis *redis);

/* Whether the chosen server has a key. */
bool cli_redis_has(const struct cli_redis *redis, struct shed_bytes key);

/* Of a cluster: how many slots it has. */
size_t cli_redis_slots(const struct cli_redis *redis);

/* Of a cluster: learn its map again. */
void cli_redis_follow(struct cli_redis *redis);

/* ---------------------------------------------------------------- asking */

/* Send a command; the answers come in the same order. Each word of the format
 * is a word of the command. %s and %.*s are replaced by a text and by bytes. */
__attribute__((format(printf, 2, 3))) void
cli_redis_send(struct cli_redis *redis, const char *format, ...);
void cli_redis_send_args(struct cli_redis *redis, const struct shed_args *args);

/* Send a command about a key to the server that has it. The key replaces the
 * word KEY. */
void cli_redis_send_key(struct cli_redis *redis, const char *words,
                        struct shed_bytes key);

/* Read the next answer, a reply to be freed and never NULL. An error ends the
 * program with a text that names what was asked; if that is NULL, an error is
 * returned as any other answer. */
struct shed_reply *cli_redis_hear(struct cli_redis *redis, const char *what);

/* The same, unless the error only says that the key is of another type, which
 * another program has made, or, with passes_denied, that the user has no right
 * to the key. */
struct shed_reply *cli_redis_hear_key(struct cli_redis *redis, const char *what,
                                      bool passes_denied);

/* The same; the integer of an answer, or -1, and the server's clock. */
long long cli_redis_hear_integer(struct cli_redis *redis, const char *what);
uint64_t cli_redis_hear_clock_ms(struct cli_redis *redis);

/* Send a command and read its answer, which may be an error. */
__attribute__((format(printf, 2, 3))) struct shed_reply *
cli_redis_ask(struct cli_redis *redis, const char *format, ...);

/* End the program if a reply is an error. Returns: the reply. */
struct shed_reply *cli_redis_check(struct cli_redis *redis,
                                   struct shed_reply *reply, const char *what);

/* Whether the reply is an error because the user has no right to the key or the
 * command. */
bool cli_redis_is_denied(const struct shed_reply *reply);

/* The bytes of a reply; .data is NULL if it has none. */
struct shed_bytes cli_redis_bytes(const struct shed_reply *reply);

/* The value of a field, cut to fit; "" if there is none. The text is a list of
 * names and values, with this character between them. */
struct cli_text cli_field(const char *text, const char *name, char is,
                          const char *ends);

/* The value of the line "name:value" of a reply to INFO; "" if the reply is an
 * error. */
struct cli_text cli_info(const struct shed_reply *info, const char *name);
long long cli_info_number(const struct shed_reply *info, const char *name);

#endif
