/* Shared by the tests of one connection. It runs by a made-up clock; the test
 * is its owner, and also the server at the other end of the socket. A program
 * that uses this is linked with --wrap=send. */
#ifndef CONN_FIXTURE_H
#define CONN_FIXTURE_H

#include "wire/conn.h"
#include "wire/script.h"
#include "support/greeting.h"
#include "support/testing.h"

#define CONNECT_MS 1000
#define COMMAND_MS 500
#define NOSCRIPT "-NOSCRIPT No matching script.\r\n"
#define TAKEN_MAX 65536

extern struct shed_address *address;
extern struct shed_conn conn;
extern int peer;
extern uint64_t now_ms;

/* What the server has read so far. */
extern char taken[TAKEN_MAX];
extern size_t taken_size;

/* How many bytes the socket takes before it is full. */
extern size_t room;

/* Start a server that demands NAME:PASSWORD@; then the connection also selects
 * a database. Or one whose socket is full after a few bytes. */
void start_server_of(const char *user);
void start_tcp_server(void);

/* Around each test: a server without a user, unless the test starts another,
 * and the end of the connection. */
void set_up(void);
void tear_down(void);

/* Connect and send the set-up; or complete the set-up as well. */
void start_conn(void);
void open_conn(void);

/* Discard the connection with everything that is queued, to make another. */
void end_conn(void);

/* Let the server send something. */
void say(const char *bytes, size_t size);
void say_text(const char *text);

/* Queue a call; send what is queued. */
void queue(const char *key, void *owner);
void queue_script(struct shed_args *args, void *owner, uint64_t number);
void flush(void);

/* Expect that the next reply is for this owner and has this text; or that there
 * is none. */
void expect(const void *owner, const char *text);
void expect_nothing(void);

#endif
