/* What the tests of one connection share: it runs by a made-up clock; the test
 * is its owner, and the server at the other end of its socket. A program that
 * uses this is linked with --wrap=send. */
#ifndef CONN_FIXTURE_H
#define CONN_FIXTURE_H

#include "redis/conn.h"
#include "redis/script.h"
#include "support/testing.h"

#define CONNECT_MS 1000
#define COMMAND_MS 500
#define PRIMARY "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
#define NOSCRIPT "-NOSCRIPT No matching script.\r\n"
#define TAKEN_MAX 65536

extern struct shed_address *address;
extern struct shed_conn conn;
extern int peer;
extern uint64_t now_ms;

/* What the peer has read, so far. */
extern char taken[TAKEN_MAX];
extern size_t taken_size;

/* How many bytes the socket takes before it is full. */
extern size_t room;

/* user: "", or "NAME:PASSWORD@"; then the connection selects a database, too.
 */
void start_server(const char *user);
/* One whose socket takes few bytes before it is full. */
void start_tcp_server(void);
void stop_server(void);

/* A server without a user. */
void set_up(void);

/* Connected, and with the set-up sent; or set up as well. */
void start_conn(void);
void open_conn(void);

/* Thrown away with all that is queued. */
void end_conn(void);

/* The server says something. */
void say(const char *bytes, size_t size);
void say_text(const char *text);

/* Queue a call; send what is queued. */
void queue(const char *key, void *owner);
void queue_script(struct shed_args *args, void *owner, uint64_t number);
void flush(void);

/* The next reply is this owner's, and this text; there is none. */
void expect(const void *owner, const char *text);
void expect_nothing(void);

#endif
