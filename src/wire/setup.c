/* The beginning of a connection. Its one invariant: it is done only when every
 * command has been answered: AUTH and SELECT without an error, ROLE with a
 * primary's reply and TIME with a time, or these with an error that names them.
 */
#include "wire/setup.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

enum shed_code shed_setup_begin(struct shed_setup *s, struct shed_address *a,
                                uint64_t now_ms, struct shed_buffer *out,
                                struct shed_error *err)
{
    const struct shed_args commands[SHED_SETUP_MAX] = {
        a->user != NULL ? shed_args_of("AUTH", a->user, a->password, NULL)
                        : shed_args_of("AUTH", a->password, NULL),
        shed_args_of("SELECT", a->db, NULL), shed_args_of("ROLE", NULL),
        shed_args_of("TIME", NULL)};
    const bool is_needed[SHED_SETUP_MAX] = {
        a->password != NULL, a->db[0] != '\0',
        !a->is_guide && !atomic_load(&a->is_role_refused), !a->is_guide};
    enum shed_code code = SHED_OK;

    *s = (struct shed_setup){.address = a, .said_ms = now_ms};
    for (size_t i = 0; code == SHED_OK && i < SHED_SETUP_MAX; i++) {
        if (!is_needed[i])
            continue;
        s->command[s->count++] = commands[i].at[0];
        code = shed_buffer_append(out, &commands[i], 0, err);
    }
    return code;
}

static bool awaits(const struct shed_setup *s, const char *command)
{
    return strcmp(shed_setup_awaited(s), command) == 0;
}

/* Whether an error is the answer to the command that is awaited: then it names
 * it ("no permissions to run the 'role' command", "unknown command `ROLE`"). If
 * a proxy doubles the answer to AUTH, the answer to a refused SELECT takes the
 * place of another's. */
static bool is_own_error(const struct shed_setup *s,
                         const struct shed_reply *reply)
{
    const char *name = shed_setup_awaited(s);
    const char *at = shed_reply_error(reply);

    while (at != NULL && (at = strpbrk(at, "'`")) != NULL)
        if (strncasecmp(++at, name, strlen(name)) == 0)
            return true;
    return false;
}

static enum shed_code fail_strange(struct shed_setup *s, struct shed_error *err)
{
    s->trouble = SHED_TROUBLE_PASSING;
    return shed_fail(err, SHED_EREDIS,
                     "Redis %s: the reply to %s is not understood",
                     s->address->text, shed_setup_awaited(s));
}

/* Take the answer to ROLE. */
static enum shed_code hear_role(struct shed_setup *s,
                                const struct shed_reply *reply,
                                struct shed_error *err)
{
    s->is_no_primary = shed_reply_is_other_role(reply);
    if (s->is_no_primary) {
        s->trouble = SHED_TROUBLE_DOWN;
        return shed_fail(err, SHED_EREDIS, "Redis %s is not a primary",
                         s->address->text);
    }
    if (!shed_reply_begins(shed_reply_at(reply, 0), "master"))
        return fail_strange(s, err);
    return SHED_OK;
}

/* Take the answer to TIME. No value is read before it, so none has to be judged
 * without the server's clock. */
static enum shed_code hear_time(struct shed_setup *s,
                                const struct shed_reply *reply, uint64_t now_ms,
                                struct shed_error *err)
{
    uint64_t server_ms = shed_reply_time_ms(reply);

    if (server_ms == 0)
        return fail_strange(s, err);
    shed_server_clock_note(&s->address->clock, s->said_ms, server_ms, now_ms);
    return SHED_OK;
}

/* The set-up was refused. Some errors mean that the server is not ready yet;
 * every other one is a matter of configuration. */
static enum shed_code refuse(struct shed_setup *s,
                             const struct shed_reply *reply,
                             struct shed_error *err)
{
    s->trouble = shed_reply_trouble(reply);
    if (s->trouble == SHED_TROUBLE_DOWN)
        s->trouble = SHED_TROUBLE_DENIED;
    return shed_fail(
        err, s->trouble == SHED_TROUBLE_DENIED ? SHED_EDENIED : SHED_EREDIS,
        "Redis %s refused %s: %s", s->address->text, shed_setup_awaited(s),
        shed_reply_error(reply));
}

/* It has some of the keys, and redirects the calls for the others, which only a
 * client of the cluster follows. */
static enum shed_code refuse_node(struct shed_setup *s, struct shed_error *err)
{
    s->trouble = SHED_TROUBLE_DENIED;
    return shed_fail(err, SHED_EDENIED,
                     "Redis %s is a node of a cluster: its URI must begin with "
                     "redis+cluster://",
                     s->address->text);
}

enum shed_code shed_setup_hear(struct shed_setup *s,
                               const struct shed_reply *reply, uint64_t now_ms,
                               struct shed_error *err)
{
    bool is_role = awaits(s, "ROLE"), is_time = awaits(s, "TIME");
    enum shed_code code = SHED_OK;

    if (atomic_load(&s->address->is_in_cluster))
        return refuse_node(s, err);
    if (shed_reply_error(reply) != NULL) {
        /* if a password is missing, the first command is refused, whichever it
         * is */
        if (!(is_role || is_time) || !is_own_error(s, reply))
            return refuse(s, reply, err);
        /* Without the right to them it goes on: the first write will show the
         * role, or that the scripts have no clock. */
        if (is_role)
            atomic_store(&s->address->is_role_refused, true);
    } else if (is_role) {
        code = hear_role(s, reply, err);
    } else if (is_time) {
        code = hear_time(s, reply, now_ms, err);
    }
    if (code == SHED_OK)
        s->answered++;
    return code;
}

bool shed_setup_is_done(const struct shed_setup *s)
{
    return s->answered == s->count;
}

const char *shed_setup_awaited(const struct shed_setup *s)
{
    assert(s->answered < s->count);
    return s->command[s->answered];
}
