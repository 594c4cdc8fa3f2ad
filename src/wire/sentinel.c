/* Sentinels. Its one invariant: an answer that fewer than half of all sentinels
 * give is never believed, whether or not the others answer. */
#include "wire/sentinel.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "wire/conn.h"

/* A sentinel that is being asked. When it has answered its connection is
 * closed; if that has failed, there is no answer. */
struct question {
    struct shed_address *address;
    struct shed_conn conn;
    struct shed_place *answer; /* in the inquiry */
};

/* All of them. */
struct inquiry {
    size_t count;
    struct question at[SHED_SENTINELS_MAX];
    struct shed_place answers[SHED_SENTINELS_MAX];
};

const struct shed_place *shed_sentinels_agree(const struct shed_place *answers,
                                              size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t equal = 0;
        for (size_t j = 0; j < count; j++)
            equal += shed_place_is_same(&answers[i], &answers[j]);
        if (answers[i].host[0] != '\0' && equal > count / 2)
            return &answers[i];
    }
    return NULL;
}

static bool is_over(const struct question *q)
{
    return q->conn.state == SHED_CONN_CLOSED ||
           q->conn.state == SHED_CONN_FAILED;
}

static void take_answer(struct question *q, const struct shed_reply *reply)
{
    const char *error = shed_reply_error(reply);
    struct shed_place answer;
    struct shed_error why;

    if (shed_reply_copy(shed_reply_at(reply, 0), answer.host,
                        sizeof(answer.host)) &&
        shed_reply_copy(shed_reply_at(reply, 1), answer.port,
                        sizeof(answer.port))) {
        *q->answer = answer;
        shed_conn_close(&q->conn);
        return;
    }
    if (shed_reply_is_nil(reply))
        error = "it knows no primary of this name";
    (void)shed_fail(&why, SHED_EREDIS, "%s",
                    error != NULL ? error : "its answer is not understood");
    shed_conn_fail(&q->conn, SHED_TROUBLE_DOWN, &why);
}

/* See what has come of it. */
static void look(struct question *q)
{
    struct shed_reply *reply = NULL;
    struct shed_conn_call call;

    if (shed_conn_next(&q->conn, shed_now_ms(), &reply, &call) !=
        SHED_CONN_NOTHING)
        take_answer(q, reply);
    shed_reply_free(reply);
}

/* SENTINEL GET-MASTER-ADDR-BY-NAME is sent as soon as the connection is set
 * up. */
static enum shed_code begin(struct question *q, const char *primary,
                            struct shed_error *err)
{
    const struct shed_conn_call call = {.owner = q};
    const struct shed_args args =
        shed_args_of("SENTINEL", "GET-MASTER-ADDR-BY-NAME", primary, NULL);
    enum shed_code code =
        shed_conn_send_args(&q->conn, &args, &call, shed_now_ms(), err);

    if (code != SHED_OK)
        return code;
    shed_conn_start(&q->conn, 0, shed_now_ms());
    return SHED_OK;
}

static enum shed_code begin_all(struct inquiry *all,
                                const struct shed_address *address,
                                struct shed_error *err)
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    enum shed_code code = SHED_OK;

    options.connect_timeout_ms = SHED_SENTINELS_ASK_MS;
    options.command_timeout_ms = SHED_SENTINELS_ASK_MS;
    while (all->count < address->count && code == SHED_OK) {
        struct question *q = &all->at[all->count];
        code = shed_address_create_at(address, &address->sentinels[all->count],
                                      &q->address, err);
        if (code != SHED_OK)
            break;
        if (!shed_address_is_known(q->address))
            shed_address_resolve(q->address);
        shed_conn_init(&q->conn, q->address, &options);
        q->answer = &all->answers[all->count++];
        code = begin(q, address->host, err);
    }
    return code;
}

static void end_all(struct inquiry *all)
{
    struct shed_conn_call call;

    for (size_t i = 0; i < all->count; i++) {
        struct question *q = &all->at[i];
        while (shed_conn_pop(&q->conn.queue, &call))
            ;
        shed_conn_close(&q->conn);
        shed_conn_fini(&q->conn);
        shed_address_unref(q->address);
    }
    free(all);
}

/* Wait for any of them, until deadline_ms. Returns: false if none is left. */
static bool wait_for_one(struct inquiry *all, uint64_t deadline_ms)
{
    struct pollfd fds[SHED_SENTINELS_MAX];
    uint64_t left_ms = shed_left_ms(deadline_ms, shed_now_ms());
    size_t open = 0;

    for (size_t i = 0; i < all->count; i++) {
        const struct question *q = &all->at[i];
        fds[i] = (struct pollfd){.fd = is_over(q) ? -1 : q->conn.wire.fd,
                                 .events = shed_conn_want(&q->conn)};
        open += !is_over(q);
    }
    if (open == 0 || left_ms == 0)
        return false;
    if (poll(fds, all->count, (int)left_ms) <= 0)
        return errno == EINTR;
    for (size_t i = 0; i < all->count; i++) {
        if (fds[i].revents == 0)
            continue;
        shed_conn_ready(&all->at[i].conn, fds[i].revents, shed_now_ms());
        look(&all->at[i]);
    }
    return true;
}

/* Name a sentinel that did not answer, or the ones that disagree. */
static enum shed_code fail_all(const struct inquiry *all,
                               struct shed_error *err)
{
    const struct question *silent = NULL;
    size_t answers = 0;

    for (size_t i = 0; i < all->count; i++) {
        if (all->answers[i].host[0] != '\0')
            answers++;
        else if (silent == NULL)
            silent = &all->at[i];
    }
    if (silent == NULL)
        return shed_fail(err, SHED_EREDIS,
                         "its %zu sentinels name different servers, and more "
                         "than half must agree",
                         all->count);
    return shed_fail(err, SHED_EREDIS,
                     "%zu of its %zu sentinels answer, and more than half must "
                     "agree; the sentinel %s: %s",
                     answers, all->count, silent->address->text,
                     is_over(silent) ? silent->conn.failure.error.reason
                                     : "no answer");
}

enum shed_code shed_sentinels_ask(const struct shed_address *address,
                                  struct shed_place *out,
                                  struct shed_error *err)
{
    struct inquiry *all = calloc(1, sizeof(*all));
    const struct shed_place *found = NULL;
    uint64_t deadline_ms;
    enum shed_code code;

    if (all == NULL)
        return shed_fail_nomem(err, "an inquiry of sentinels");
    code = begin_all(all, address, err);
    deadline_ms = shed_now_ms() + SHED_SENTINELS_ASK_MS; /* after the lookups */
    while (code == SHED_OK) {
        found = shed_sentinels_agree(all->answers, all->count);
        if (found != NULL || !wait_for_one(all, deadline_ms))
            break;
    }
    if (found != NULL)
        *out = *found;
    else if (code == SHED_OK)
        code = fail_all(all, err);
    end_all(all);
    return code;
}
