/*
 * WAIT. Its invariant: a WAIT is behind a GET and an INCRBY of each of its
 * questions on the same connection. It counts the replicas that have the last
 * write of its own connection (since Redis 7.2; before, what was carried out
 * before its last command), and so what the GETs have found: adding 0 to a
 * counter is such a write. A server that has taken the place of another is
 * known by the missing token.
 */
#include "redis/acks.h"

#include <string.h>

#include "base/error.h"

static bool contains(const struct shed_reply *reply, const struct shed_ack *ack)
{
    size_t size = 0;
    const char *bytes = shed_reply_bytes(reply, &size);

    for (size_t i = 0; bytes != NULL && i + ack->token.size <= size; i++)
        if (memcmp(bytes + i, ack->token.data, ack->token.size) == 0)
            return true;
    return false;
}

/* Keep the first reason why there is no answer. */
static void note_failure(struct shed_ack *ack,
                         const struct shed_call_result *result)
{
    const char *text = shed_reply_error(result->reply);

    if (ack->error.code != SHED_OK)
        return;
    if (result->reply == NULL)
        ack->error = *result->why;
    else if (text != NULL)
        (void)shed_fail(&ack->error, shed_reply_code(result->reply),
                        "Redis: %s", text);
}

/* Usually behind WAIT; without memory for that, the others come later. */
static void conclude(struct shed_ack *ack)
{
    if (--ack->left == 0)
        ack->fn(ack->arg, ack);
}

static void on_read(void *arg, const struct shed_call_result *result)
{
    struct shed_ack *ack = arg;

    note_failure(ack, result);
    ack->is_there = contains(result->reply, ack);
    conclude(ack);
}

static void on_written(void *arg, const struct shed_call_result *result)
{
    note_failure(arg, result);
    conclude(arg);
}

static void send_next(struct shed_acks *a);

static void on_wait(void *arg, const struct shed_call_result *result)
{
    struct shed_acks *a = arg;
    long long count = shed_reply_integer(result->reply);
    struct shed_ack *answered = a->asked;

    a->asked = NULL; /* one who is told may ask again */
    while (answered != NULL) {
        struct shed_ack *ack = answered;
        answered = ack->next;
        note_failure(ack, result);
        ack->count = count > 0 ? (uint64_t)count : 0;
        conclude(ack);
    }
    if (a->wait.fn == NULL)
        send_next(a);
}

static void send_question(struct shed_acks *a, struct shed_ack *ack)
{
    struct shed_args read = {0}, write = {0};

    ack->error.code = SHED_OK;
    ack->left = 3;
    ack->timeout_ms = a->timeout_ms;
    shed_args_add_text(&read, "GET");
    shed_args_add(&read, ack->key.data, ack->key.size);
    shed_pipe_call(a->pipe, &ack->read, &read, on_read, ack);
    shed_args_add_text(&write, "INCRBY");
    shed_args_add(&write, ack->counter.data, ack->counter.size);
    shed_args_add_text(&write, "0");
    shed_pipe_call(a->pipe, &ack->write, &write, on_written, ack);
}

/* Questions and WAIT reach the server over the same connection: they are queued
 * together, and if the connection is lost all of them fail. */
static void send_next(struct shed_acks *a)
{
    struct shed_args args = {0};
    char digits[2][SHED_DIGITS];
    uint64_t replicas = 0;

    if (a->waiting == NULL)
        return;
    a->asked = a->waiting;
    a->waiting = NULL;
    for (struct shed_ack *ack = a->asked; ack != NULL; ack = ack->next) {
        send_question(a, ack);
        if (ack->replicas > replicas)
            replicas = ack->replicas;
    }
    shed_args_add_text(&args, "WAIT");
    shed_args_add_number(&args, digits[0], replicas);
    shed_args_add_number(&args, digits[1], a->timeout_ms);
    shed_pipe_call(a->pipe, &a->wait, &args, on_wait, a);
}

void shed_acks_ask(struct shed_acks *a, struct shed_ack *ack)
{
    shed_pipe_open(a->pipe);
    ack->next = a->waiting;
    a->waiting = ack;
    if (a->wait.fn == NULL)
        send_next(a);
}
