/* Answers of the tests' own sources that have nothing but a kind and a row. */
#ifndef SHED_ANSWERS_H
#define SHED_ANSWERS_H

#include <snowshed/source.h>

SHED_INLINE void answer_kind(struct shed_load *load, size_t i,
                             enum shed_answer_kind kind, const char *reason)
{
    struct shed_answer answer = SHED_ANSWER_INIT;

    answer.kind = kind;
    answer.reason = reason;
    shed_load_answer(load, i, &answer);
}

SHED_INLINE void answer_row(struct shed_load *load, size_t i,
                            struct shed_bytes row)
{
    struct shed_answer answer = SHED_ANSWER_INIT;

    answer.kind = SHED_ANSWER_ROW;
    answer.row = row;
    shed_load_answer(load, i, &answer);
}

SHED_INLINE void answer_null(struct shed_load *load, size_t i)
{
    answer_kind(load, i, SHED_ANSWER_NULL, NULL);
}

SHED_INLINE void answer_absent(struct shed_load *load, size_t i)
{
    answer_kind(load, i, SHED_ANSWER_ABSENT, NULL);
}

SHED_INLINE void answer_failed(struct shed_load *load, size_t i,
                               const char *reason)
{
    answer_kind(load, i, SHED_ANSWER_FAILED, reason);
}

SHED_INLINE void answer_too_big(struct shed_load *load, size_t i,
                                const char *reason)
{
    answer_kind(load, i, SHED_ANSWER_TOO_BIG, reason);
}

#endif
