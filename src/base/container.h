/* From a field back to the struct that it is part of. */
#ifndef SHED_CONTAINER_H
#define SHED_CONTAINER_H

#include <stddef.h>

/* The struct of this type whose member is at pointer. The sizeof makes a
 * pointer to anything else than such a member fail to compile. */
#define shed_container_of(pointer, type, member)                               \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member) -               \
                      0 * sizeof((pointer) == &((type *)0)->member)))

#endif
