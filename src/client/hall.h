/* What a client knows of its locks: whom to tell when a key has changed, and
 * which to close with it. */
#ifndef SHED_LOCK_HALL_H
#define SHED_LOCK_HALL_H

#include <stdbool.h>
#include <stddef.h>

#include <snowshed/snowshed.h>

struct shed_hall;

/* Returns: NULL when memory is out. */
struct shed_hall *shed_hall_create(void);
void shed_hall_destroy(struct shed_hall *hall);

/* One who wants to know when a key changes. Reactor thread. */
struct shed_watch {
    const char *key;
    size_t key_size;
    void (*on_change)(struct shed_watch *watch);
    /* pushes have begun or ended, or some were lost */
    void (*on_epoch)(struct shed_watch *watch);
    struct shed_watch *next;
};

void shed_hall_watch(struct shed_hall *hall, struct shed_watch *watch);
void shed_hall_unwatch(struct shed_hall *hall, struct shed_watch *watch);
void shed_hall_change(struct shed_hall *hall, const char *key, size_t size);
void shed_hall_epoch(struct shed_hall *hall);

/* One who is to be closed with the client. Any thread. */
struct shed_guest {
    void (*close)(struct shed_guest *guest); /* leaves the hall */
    struct shed_guest *next;
    struct shed_guest **link;
};

void shed_hall_enter(struct shed_hall *hall, struct shed_guest *guest);
void shed_hall_leave(struct shed_hall *hall, struct shed_guest *guest);
void shed_hall_close_guests(struct shed_hall *hall);

#endif
