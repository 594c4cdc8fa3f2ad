/*
 * A get of many keys that does not block: a get of each, begun in one turn of
 * the loop, so that their GETs go out together, and ended with the last of
 * them.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/error.h"
#include "cache/pending.h"
#include "cache/get.h"

struct many;

struct part {
    struct many *many;
    struct shed_pending *pending; /* NULL: it has ended */
    struct shed_error *why;       /* see shed_error_keep */
};

/* Reactor thread only, once it is submitted. */
struct many {
    struct shed_pending pending; /* first */
    struct shed_item *items;     /* the program's, as errors are */
    struct shed_error *errors;   /* or NULL */
    size_t count;
    size_t left;         /* parts that have not ended */
    bool is_let_through; /* see shed_asker */
    struct part parts[];
};

static void destroy_parts(struct many *m)
{
    for (size_t i = 0; i < m->count; i++) {
        free(m->parts[i].pending);
        free(m->parts[i].why);
    }
}

static void destroy(struct many *m)
{
    destroy_parts(m);
    free(m);
}

static void end(struct many *m)
{
    struct shed_cache *cache = m->pending.cache;
    struct shed_error all = {SHED_OK, ""};

    for (size_t i = 0; i < m->count; i++)
        shed_get_conclude(cache, &m->items[i], i,
                          shed_error_kept(m->parts[i].why),
                          m->errors != NULL ? &m->errors[i] : NULL, &all);
    if (!m->pending.is_stopped) {
        m->pending.code = all.code;
        m->pending.why = all.code != SHED_OK ? shed_error_keep(&all) : NULL;
    }
    destroy_parts(m);
    shed_async_end(&m->pending, NULL);
}

static void on_part(void *user, enum shed_code code, struct shed_value *value,
                    const struct shed_error *reason)
{
    struct part *part = user;
    struct many *m = part->many;
    struct shed_item *item = &m->items[part - m->parts];

    item->code = code;
    item->value = value;
    part->pending = NULL;
    if (reason != NULL)
        part->why = shed_error_keep(reason);
    if (--m->left == 0)
        end(m);
}

static void step(struct shed_pending *pending, unsigned events)
{
    struct many *m = shed_container_of(pending, struct many, pending);

    for (size_t i = 0; i < m->count; i++) {
        struct part *part = &m->parts[i];
        if (events & SHED_ASYNC_START) {
            part->pending->then = (struct shed_then){on_part, part, NULL};
            shed_async_begin(part->pending);
        }
        if (pending->is_stopped && pending->code != SHED_ECLOSED)
            (void)shed_cancel(part->pending);
    }
    if (m->count == 0)
        end(m);
}

static struct many *create(struct shed_cache *cache, struct shed_item *items,
                           size_t count, const struct shed_terms *terms,
                           struct shed_error *errors)
{
    struct many *m = calloc(1, sizeof(*m) + count * sizeof(m->parts[0]));
    struct shed_named_key named;

    if (m == NULL)
        return NULL;
    m->pending.cache = cache;
    m->pending.step = step;
    m->items = items;
    m->errors = errors;
    m->count = m->left = count;
    for (size_t i = 0; i < count; i++) {
        struct part *part = &m->parts[i];
        part->many = m;
        shed_key_name(cache->name, items[i].key, &named);
        part->pending =
            shed_async_get_create(cache, &named.key, terms, &m->is_let_through);
        if (part->pending == NULL) {
            destroy(m);
            return NULL;
        }
    }
    return m;
}

enum shed_code shed_get_many_async(struct shed_cache *cache,
                                   struct shed_item *items, size_t count,
                                   const struct shed_get_options *options,
                                   const struct shed_then *then,
                                   struct shed_pending **pending,
                                   struct shed_error *err)
{
    struct shed_terms terms;
    struct shed_error *errors;
    struct many *m;
    enum shed_code code = shed_async_check(then, pending, err);

    if (code == SHED_OK)
        code =
            shed_get_take_options(cache, options, true, &terms, &errors, err);
    if (code == SHED_OK)
        code = shed_get_check_items(items, count, err);
    if (code != SHED_OK)
        return code;
    terms.start_us = shed_now_us();
    m = create(cache, items, count, &terms, errors);
    if (m == NULL)
        return shed_fail_nomem(err, "an asynchronous call");
    code = shed_async_submit(&m->pending, count > 0 ? count : 1, then, pending,
                             err);
    if (code != SHED_OK)
        destroy(m);
    return code;
}
