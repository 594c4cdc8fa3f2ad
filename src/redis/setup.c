/* The beginning of a connection. Its one invariant: it is done only when every
 * command has been answered: AUTH and SELECT without an error, ROLE with a
 * primary's reply, or with an error that names ROLE. */
#include "redis/setup.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

static struct shed_args *add(struct shed_setup *s, const char *command)
{
    struct shed_args *args = &s->command[s->count];

    assert(s->count < SHED_SETUP_MAX);
    s->count++;
    *args = (struct shed_args){0};
    shed_args_add_text(args, command);
    return args;
}

void shed_setup_begin(struct shed_setup *s, struct shed_address *a)
{
    struct shed_args *args;

    s->address = a;
    s->is_no_primary = false;
    s->count = s->answered = 0;
    if (a->password != NULL) {
        args = add(s, "AUTH");
        if (a->user != NULL)
            shed_args_add_text(args, a->user);
        shed_args_add_text(args, a->password);
    }
    if (a->db[0] != '\0') {
        args = add(s, "SELECT");
        shed_args_add_text(args, a->db);
    }
    /* with no command at all, a silent server would seem to be there */
    if (!atomic_load(&a->is_role_refused) || s->count == 0)
        (void)add(s, "ROLE");
}

enum shed_code shed_setup_say(const struct shed_setup *s,
                              struct shed_buffer *out, struct shed_error *err)
{
    enum shed_code code = SHED_OK;

    for (size_t i = 0; i < s->count && code == SHED_OK; i++)
        code = shed_buffer_append(out, &s->command[i], err);
    return code;
}

/* Whether an error is the answer to ROLE: then it names the command ("no
 * permissions to run the 'role' command", "unknown command `ROLE`"). If a proxy
 * doubles the answer to AUTH, the answer to a refused SELECT takes the place of
 * ROLE's. */
static bool is_role_error(const struct shed_reply *reply)
{
    static const char *const names[] = {"'role", "'ROLE", "`role", "`ROLE"};
    const char *text = shed_reply_error(reply);

    for (size_t i = 0; text != NULL && i < sizeof(names) / sizeof(*names); i++)
        if (strstr(text, names[i]) != NULL)
            return true;
    return false;
}

/* Take the answer to ROLE. A user without the right to it goes on; the first
 * write will show the role. */
static enum shed_code hear_role(struct shed_setup *s,
                                const struct shed_reply *reply,
                                enum shed_trouble *trouble,
                                struct shed_error *err)
{
    if (is_role_error(reply)) {
        atomic_store(&s->address->is_role_refused, true);
        s->answered++;
        return SHED_OK;
    }
    s->is_no_primary = shed_reply_is_other_role(reply);
    if (s->is_no_primary) {
        *trouble = SHED_TROUBLE_DOWN;
        return shed_fail(err, SHED_EREDIS, "Redis %s is not a primary",
                         s->address->text);
    }
    if (!shed_reply_begins(shed_reply_at(reply, 0), "master")) {
        *trouble = SHED_TROUBLE_PASSING;
        return shed_fail(err, SHED_EREDIS,
                         "Redis %s: the reply to ROLE is not understood",
                         s->address->text);
    }
    s->answered++;
    return SHED_OK;
}

/* The set-up was refused. Some errors mean that the server is not ready yet;
 * every other one is a matter of configuration. */
static enum shed_code refuse(const struct shed_setup *s,
                             const struct shed_reply *reply,
                             enum shed_trouble *trouble, struct shed_error *err)
{
    *trouble = shed_reply_trouble(reply);
    if (*trouble == SHED_TROUBLE_DOWN)
        *trouble = SHED_TROUBLE_DENIED;
    return shed_fail(
        err, *trouble == SHED_TROUBLE_DENIED ? SHED_EDENIED : SHED_EREDIS,
        "Redis %s refused %s: %s", s->address->text, shed_setup_awaited(s),
        shed_reply_error(reply));
}

enum shed_code shed_setup_hear(struct shed_setup *s,
                               const struct shed_reply *reply,
                               enum shed_trouble *trouble,
                               struct shed_error *err)
{
    bool is_role = strcmp(shed_setup_awaited(s), "ROLE") == 0;

    /* if a password is missing, the first command is refused, whichever it
     * is */
    if (shed_reply_error(reply) != NULL && !(is_role && is_role_error(reply)))
        return refuse(s, reply, trouble, err);
    if (is_role)
        return hear_role(s, reply, trouble, err);
    s->answered++;
    return SHED_OK;
}

bool shed_setup_is_done(const struct shed_setup *s)
{
    return s->answered == s->count;
}

const char *shed_setup_awaited(const struct shed_setup *s)
{
    assert(s->answered < s->count);
    return s->command[s->answered].at[0];
}
