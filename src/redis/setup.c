/* The beginning of a connection. Its one invariant: it is done only when every
 * command of it was answered without an error. */
#include "redis/setup.h"

#include "error.h"

static struct shed_args *add(struct shed_setup *s, const char *command)
{
    struct shed_args *args = &s->command[s->count++];

    *args = (struct shed_args){0};
    shed_args_add_text(args, command);
    return args;
}

void shed_setup_begin(struct shed_setup *s, const struct shed_address *a)
{
    struct shed_args *args;

    s->address = a;
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
}

int shed_setup_say(const struct shed_setup *s, struct shed_buffer *out,
                   struct shed_error *err)
{
    int code = SHED_OK;

    for (size_t i = 0; i < s->count && code == SHED_OK; i++)
        code = shed_buffer_append(out, &s->command[i], err);
    return code;
}

int shed_setup_hear(struct shed_setup *s, const struct shed_reply *reply,
                    enum shed_trouble *trouble, struct shed_error *err)
{
    const char *text = shed_reply_error(reply);

    if (text == NULL) {
        s->answered++;
        return SHED_OK;
    }
    *trouble = shed_reply_trouble(reply);
    return shed_fail(err, shed_reply_code(reply), "Redis %s refused %s: %s",
                     s->address->text, shed_setup_awaited(s), text);
}

bool shed_setup_is_done(const struct shed_setup *s)
{
    return s->answered == s->count;
}

const char *shed_setup_awaited(const struct shed_setup *s)
{
    return s->command[s->answered].at[0];
}
