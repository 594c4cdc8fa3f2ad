/* Queue a job at a source, and let a load begin. */
#ifndef QUEUE_AND_WAKE_H
#define QUEUE_AND_WAKE_H

#include "source/load.h"

static inline enum shed_code queue_and_wake(struct shed_source *source,
                                            struct shed_job *job,
                                            struct shed_error *err)
{
    enum shed_code code = shed_source_queue(source, job, err);

    if (code == SHED_OK)
        shed_source_wake(source);
    return code;
}

#endif
