/* Gets from a field to the struct that contains it. */
#ifndef SHED_CONTAINER_H
#define SHED_CONTAINER_H

#include <stddef.h>

/* The struct of this type whose member is at pointer. The sizeof rejects, at
 * compile time, a pointer to anything else than such a member. */
#define shed_container_of(pointer, type, member)                               \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member) -               \
                      0 * sizeof((pointer) == &((type *)0)->member)))

#endif
