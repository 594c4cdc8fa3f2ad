/* The scout. Its invariant: each question has one answer, or the scout is lost,
 * which is told once. */
#include "client/scout.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "wire/address.h"
#include "redis/pipe.h"

struct shed_scout {
    struct shed_address *address;
    struct shed_gate *gate;
    struct shed_pipe *pipe;
    struct shed_call info, call;
    bool is_cut_off;
    shed_scout_fn *fn; /* NULL: it is lost, and that was told */
    void *arg;
};

static void tell(struct shed_scout *s, const struct shed_reply *reply)
{
    shed_scout_fn *fn = s->fn;

    if (fn == NULL)
        return;
    if (reply == NULL)
        s->fn = NULL;
    fn(s->arg, reply, s->is_cut_off);
}

static void on_answer(void *arg, const struct shed_call_result *result)
{
    tell(arg, result->reply);
}

/* Without the right to CLUSTER INFO the node is believed. */
static void on_info(void *arg, const struct shed_call_result *result)
{
    struct shed_scout *s = arg;
    size_t size = 0;
    const char *text = shed_reply_bytes(result->reply, &size);

    s->is_cut_off = text != NULL && strstr(text, "cluster_state:fail") != NULL;
}

static void ask(struct shed_scout *s, struct shed_call *call, const char *what,
                shed_pipe_fn *fn)
{
    struct shed_args args = {0};

    shed_args_add_text(&args, "CLUSTER");
    shed_args_add_text(&args, what);
    shed_pipe_call(s->pipe, call, &args, fn, s);
}

void shed_scout_ask(struct shed_scout *s)
{
    if (s->call.fn != NULL)
        return;
    ask(s, &s->info, "INFO", on_info);
    ask(s, &s->call, "SLOTS", on_answer);
}

static void on_open(void *arg)
{
    shed_scout_ask(arg);
}

static void on_lost(void *arg, bool was_open, const struct shed_error *why)
{
    (void)was_open;
    (void)why;
    tell(arg, NULL);
}

const char *shed_scout_host(const struct shed_scout *s)
{
    return s->address->host;
}

enum shed_code shed_scout_send(struct shed_reactor *reactor,
                               const struct shed_address *cluster,
                               const char *host, const char *port,
                               const struct shed_client_options *options,
                               shed_scout_fn *fn, void *arg,
                               struct shed_scout **out, struct shed_error *err)
{
    struct shed_scout *s = calloc(1, sizeof(*s));
    const struct shed_pipe_hooks hooks = {
        .arg = s, .on_open = on_open, .on_lost = on_lost};
    enum shed_code code;

    *out = NULL;
    if (s == NULL)
        return shed_fail_nomem(err, "a client");
    s->fn = fn;
    s->arg = arg;
    code = shed_address_create_at(cluster, host, port, &s->address, err);
    if (code == SHED_OK) {
        s->address->is_guide = true;
        code = shed_gate_create(s->address, options, NULL, NULL, &s->gate, err);
    }
    if (code == SHED_OK)
        code = shed_pipe_create(reactor, s->gate, SHED_HEALTH_COMMANDS, options,
                                &hooks, &s->pipe, err);
    if (code != SHED_OK) {
        shed_scout_destroy(s);
        return code;
    }
    shed_pipe_open(s->pipe);
    *out = s;
    return SHED_OK;
}

void shed_scout_destroy(struct shed_scout *s)
{
    if (s == NULL)
        return;
    shed_pipe_close(s->pipe);
    shed_gate_destroy(s->gate);
    shed_address_unref(s->address);
    free(s);
}

void shed_scout_forget(struct shed_scout *s)
{
    if (s != NULL)
        shed_pipe_forget(s->pipe);
}
