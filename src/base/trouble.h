/* What a failure of Redis means for the next step of the caller. */
#ifndef SHED_TROUBLE_H
#define SHED_TROUBLE_H

enum shed_trouble {
    SHED_TROUBLE_PASSING, /* the reply was lost, Redis is loading or busy, or
                             the server is now a replica: the same request can
                             be sent again */
    SHED_TROUBLE_DOWN, /* Redis cannot be reached, and will not be for some time
                        */
    SHED_TROUBLE_NO_WRITE, /* reads are answered, writes are refused */
    SHED_TROUBLE_DENIED    /* refused for good: no retry will help */
};

#endif
