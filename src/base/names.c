/*
 * The names of public enumerators, as people and logs want them. The switches
 * have no default, so that the compiler finds an enumerator without a name.
 */
#include <snowshed/snowshed.h>

const char *shed_kind_name(enum shed_kind kind)
{
    switch (kind) {
    case SHED_KIND_ROW:
        return "row";
    case SHED_KIND_NULL:
        return "null";
    case SHED_KIND_ABSENT:
        return "absent";
    }
    return "unknown kind";
}

const char *shed_origin_name(enum shed_origin origin)
{
    switch (origin) {
    case SHED_ORIGIN_REDIS:
        return "redis";
    case SHED_ORIGIN_LOAD:
        return "load";
    case SHED_ORIGIN_UNPUBLISHED:
        return "unpublished";
    case SHED_ORIGIN_STALE:
        return "stale";
    case SHED_ORIGIN_WAITED:
        return "waited";
    }
    return "unknown origin";
}
