/* The names of public enumerators, as people and logs want them. */
#include <snowshed/snowshed.h>

static const char *const codes[] = {
#define NAME(code) [code] = #code
    NAME(SHED_OK),        NAME(SHED_EINVAL),  NAME(SHED_ENOMEM),
    NAME(SHED_ETIMEDOUT), NAME(SHED_EBUSY),   NAME(SHED_EREDIS),
    NAME(SHED_ESOURCE),   NAME(SHED_ETOOBIG), NAME(SHED_EDENIED),
    NAME(SHED_ECLOSED),   NAME(SHED_EFORKED), NAME(SHED_ELOST),
    NAME(SHED_EMISS)
#undef NAME
};

static const char *const kinds[] = {[SHED_KIND_ROW] = "row",
                                    [SHED_KIND_NULL] = "null",
                                    [SHED_KIND_ABSENT] = "absent"};

static const char *const origins[] = {[SHED_ORIGIN_REDIS] = "redis",
                                      [SHED_ORIGIN_LOAD] = "load",
                                      [SHED_ORIGIN_UNPUBLISHED] = "unpublished",
                                      [SHED_ORIGIN_STALE] = "stale",
                                      [SHED_ORIGIN_WAITED] = "waited"};

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

const char *shed_code_name(enum shed_code code)
{
    return code < LENGTH(codes) ? codes[code] : "unknown shed_code";
}

const char *shed_kind_name(enum shed_kind kind)
{
    return kind < LENGTH(kinds) ? kinds[kind] : "unknown kind";
}

const char *shed_origin_name(enum shed_origin origin)
{
    return origin < LENGTH(origins) ? origins[origin] : "unknown origin";
}
