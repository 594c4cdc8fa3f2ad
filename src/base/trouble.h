/* What a failure of Redis means for the next step of the caller. */
#ifndef SHED_TROUBLE_H
#define SHED_TROUBLE_H

enum shed_trouble {
    SHED_TROUBLE_PASSING,  /* the reply was lost, Redis loads or is busy, or
                              its server is a replica now: the same request
                              can be sent again */
    SHED_TROUBLE_DOWN,     /* cannot be reached, and not for some time */
    SHED_TROUBLE_NO_WRITE, /* reads are answered, writes are refused */
    SHED_TROUBLE_DENIED    /* refused for good: no retry will help */
};

#endif
