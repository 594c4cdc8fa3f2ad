/*
 * One server, over one of the library's connections, which is waited for here.
 * What fails is told by a text that names the server, but never a password.
 */
#ifndef CLI_SERVER_H
#define CLI_SERVER_H

#include <stdarg.h>

#include "cli/cli.h"
#include "wire/conn.h"
#include "wire/reply.h"

struct cli_server {
    const struct cli_call *call;
    struct shed_address *address; /* it is the server's */
    struct shed_conn conn;
};

/* The options of a client that does as the command line says. */
struct shed_client_options cli_client_options(const struct cli_call *call);

/* What the call's URI names, to be given back with shed_address_unref. Ends the
 * program if the URI is wrong. */
struct shed_address *cli_server_address(const struct cli_call *call);

/* The server of an address, or, at this place unless it is NULL, a node or a
 * sentinel of the URI from which that was made. Nothing is connected yet. */
struct cli_server *cli_server_create(const struct cli_call *call,
                                     struct shed_address *address,
                                     const struct shed_place *at);

/* NULL is allowed. */
void cli_server_destroy(struct cli_server *server);

/* Connect, with AUTH and SELECT, if it is not connected. Returns: false, and
 * err says why. */
bool cli_server_open(struct cli_server *server, struct shed_error *err);

/* Connect if need be, and queue a command. *answer is NULL until its answer is
 * put there. Returns: as open. */
bool cli_server_send(struct cli_server *server, const struct shed_args *args,
                     struct shed_reply **answer, struct shed_error *err);

/* Send what is queued, and wait for the next answer, which is put in its place,
 * or for a push, which is *push, else NULL; until end_ms (shed_now_ms; 0: do
 * not wait). Returns: false: the connection is lost, as when an answer does not
 * come for as long as --timeout says (SHED_ETIMEDOUT); it is closed then. */
bool cli_server_hear(struct cli_server *server, uint64_t end_ms,
                     struct shed_reply **push, struct shed_error *err);

/* Wait until there is an answer. Returns: as hear. */
bool cli_server_await(struct cli_server *server, struct shed_reply **answer,
                      struct shed_error *err);

/* Send a command, and wait for its answer; NULL, and err says why, if there is
 * none. An error is an answer, or, if what is not NULL, a failure, which names
 * that. */
__attribute__((format(printf, 4, 5))) struct shed_reply *
cli_server_ask(struct cli_server *server, struct shed_error *err,
               const char *what, const char *format, ...);

/* What can be done about an error of Redis: ": ...", or nothing. */
const char *cli_server_advice(const char *error);

/* The words of a command: each word of the format, in which %s and %.*s are
 * replaced by a text and by bytes; so is KEY by bytes. */
__attribute__((format(printf, 2, 0))) void
cli_words(struct shed_args *args, const char *format, va_list list);

#endif
