/*
 * One socket to Redis: bytes out, replies in. It never waits; its user does,
 * with poll or with the loop. parser.h makes the replies.
 *
 * Not thread-safe. After any failure the wire is closed and stays closed,
 * because bytes that still arrive must not be taken for the answer to another
 * command.
 */
#ifndef SHED_WIRE_WIRE_H
#define SHED_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

#include "wire/address.h"
#include "wire/parser.h"
#include "wire/reply.h"

/* The arguments of one command; borrowed until the command is formatted. */
#define SHED_ARGS_MAX 18

struct shed_script_text;

struct shed_args {
    int count;
    const struct shed_script_text *script; /* NULL: a plain command */
    bool is_guarded;   /* the client's breaker may refuse it (gate.h) */
    bool is_asking;    /* over a pipe: ASKING goes before it */
    bool is_followed;  /* over a pipe to a cluster: it goes where a redirection
                          leads, as all calls of scripts do */
    bool is_untracked; /* over a session: its answer is not kept, so changes of
                          what it reads need not be announced */
    bool is_repeated; /* over a pipe: its owner sends it again if the connection
                         is lost, and the breaker does not count that */
    const struct shed_args *more; /* further arguments, borrowed; of these,
                                     only count, at, size and more count */
    const char *at[SHED_ARGS_MAX];
    size_t size[SHED_ARGS_MAX];
};

/* A plain command of these words, up to a NULL. */
struct shed_args shed_args_of(const char *word, ...);

void shed_args_add(struct shed_args *args, const void *bytes, size_t size);
void shed_args_add_text(struct shed_args *args, const char *text);

/* Room for the decimal digits of 64 bits. */
#define SHED_DIGITS 24

/* Write a number as Redis wants it. */
void shed_write_digits(char digits[SHED_DIGITS], uint64_t number);

/* Add a number, whose digits are borrowed as all arguments are. */
void shed_args_add_number(struct shed_args *args, char digits[SHED_DIGITS],
                          uint64_t number);

/* A buffer that grows up to a limit. {0} is an empty one. */
struct shed_buffer {
    char *at;
    size_t size;
    size_t capacity;
};

/* The most bytes that may wait to be sent over one connection. */
#define SHED_BUFFER_MAX_BYTES ((size_t)1 << 30)

/* Append a formatted command, with its number behind all arguments, unless that
 * is 0.
 * Returns: SHED_OK; SHED_ENOMEM, SHED_EBUSY (limit): nothing is appended. */
SHED_MUST_CHECK enum shed_code shed_buffer_append(struct shed_buffer *buffer,
                                                  const struct shed_args *args,
                                                  uint64_t number,
                                                  struct shed_error *err);

/* Append the bytes of more. Returns: as shed_buffer_append. */
SHED_MUST_CHECK enum shed_code shed_buffer_add(struct shed_buffer *buffer,
                                               const struct shed_buffer *more,
                                               struct shed_error *err);
void shed_buffer_fini(struct shed_buffer *buffer);

enum shed_wire_io {
    SHED_WIRE_DONE,  /* all is sent; something has been read */
    SHED_WIRE_AGAIN, /* the socket, or the peer, is not ready for more */
    SHED_WIRE_LOST   /* failed: err says why; close it */
};

struct shed_tls;

struct shed_wire {
    int fd;               /* -1 when closed */
    char *in;             /* what has been read */
    size_t in_at, in_end; /* of it, what the parser has not been given yet */
    struct shed_parser parser;
    bool is_starved;        /* there was no memory for a reply */
    struct shed_buffer out; /* being sent; not empty before all is */
    size_t out_sent;        /* with TLS: sealed */
    struct shed_tls *tls;   /* NULL: plain */
    size_t sealed_sent;     /* of its output */
};

/* Initialise a wire as closed. */
void shed_wire_init(struct shed_wire *wire);

/* Begin to connect. When the socket is writable the attempt has ended: then
 * call shed_wire_connected. If the address wants TLS, its handshake begins with
 * the first flush, and is driven by flush and fill; flush sends nothing of out
 * before it has ended.
 * Returns: SHED_OK; SHED_EREDIS, SHED_EBUSY (descriptors), SHED_ENOMEM: the
 * wire is closed. */
SHED_MUST_CHECK enum shed_code shed_wire_open(struct shed_wire *wire,
                                              struct shed_address *address,
                                              struct shed_error *err);

/* Returns: SHED_OK; SHED_EREDIS: close it. */
SHED_MUST_CHECK enum shed_code shed_wire_connected(const struct shed_wire *wire,
                                                   struct shed_address *address,
                                                   struct shed_error *err);

/* Whether the handshake of TLS has not ended. */
bool shed_wire_is_in_handshake(const struct shed_wire *wire);

/* Whether there is something that the socket has not taken yet. */
bool shed_wire_is_unsent(const struct shed_wire *wire);

/* Send what is in out. */
enum shed_wire_io shed_wire_flush(struct shed_wire *wire,
                                  struct shed_error *err);

/* Read once. If it waits, for at most as long as shed_wire_block has set: this
 * saves one system call compared with poll and read. AGAIN: nothing has come.
 */
enum shed_wire_io shed_wire_fill(struct shed_wire *wire, bool waits,
                                 struct shed_error *err);
SHED_MUST_CHECK enum shed_code shed_wire_block(struct shed_wire *wire,
                                               uint64_t limit_ms,
                                               struct shed_error *err);

/* Get the next complete reply: DONE and *reply, AGAIN (there is none yet), LOST
 * (the bytes are not RESP, or is_starved). */
enum shed_wire_io shed_wire_next(struct shed_wire *wire,
                                 struct shed_reply **reply,
                                 struct shed_error *err);

/* Whether nothing is left to read. A connection without a command under way
 * must be quiet, because an unrequested reply would answer the next command. */
bool shed_wire_is_quiet(struct shed_wire *wire);

/* Wait until the socket can be read or written (poll's events). Returns: the
 * events that are ready, 0 at the deadline (shed_now_ms). */
int shed_wire_wait(const struct shed_wire *wire, short events,
                   uint64_t deadline_ms);

/* Shut the connection down, so that a thread that waits to receive on it
 * returns. */
void shed_wire_shut(const struct shed_wire *wire);

/* Make close discard what the kernel has not sent yet; harmless on a closed
 * wire. */
void shed_wire_drop_unsent(const struct shed_wire *wire);

/* Close the connection; harmless on a closed wire. */
void shed_wire_close(struct shed_wire *wire);

/* In a forked child: close the descriptor and touch nothing else, because the
 * rest may have been copied half changed. */
void shed_wire_forget(struct shed_wire *wire);

#endif
