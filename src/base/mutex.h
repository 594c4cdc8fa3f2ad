/*
 * Mutexes that know their place in the lock order: a thread that holds one
 * takes only such as come after it. A debug build asserts this at each lock;
 * with NDEBUG these are pthread's functions and nothing more.
 */
#ifndef SHED_MUTEX_H
#define SHED_MUTEX_H

#include <pthread.h>

#include <snowshed/snowshed.h>

/* The lock order, the outermost first. No two of one rank are held together. */
enum shed_rank {
    SHED_RANK_LOCK,     /* a lock's */
    SHED_RANK_LINKS,    /* which links are in use */
    SHED_RANK_LINK,     /* the socket of one */
    SHED_RANK_TABLE,    /* who waits for the flights of a cache */
    SHED_RANK_LOCAL,    /* a shard of the local rows */
    SHED_RANK_DELIVERY, /* the undelivered writes */
    SHED_RANK_TAG_LOG,  /* what is known of tags */
    SHED_RANK_SOURCE,   /* the queue of loads */
    SHED_RANK_BATCH,    /* the answers of one load */
    SHED_RANK_CLUSTER,  /* who has which slot */
    SHED_RANK_SESSION,  /* whether a server is up; whom it takes us for */
    SHED_RANK_GATE,     /* the health of a server */
    SHED_RANK_ADDRESS,  /* what a host name has led to */
    SHED_RANK_TLS,      /* what the next connection resumes */
    SHED_RANK_LOOKUP,   /* of a host name, under way */
    SHED_RANK_EVENTS,   /* limits of events and lines */
    SHED_RANK_ASYNC,    /* asynchronous calls with events */
    SHED_RANK_QUEUE,    /* calls that have ended */
    SHED_RANK_REACTOR,  /* posts */
    SHED_RANK_PACER     /* of the MySQL source */
};

struct shed_mutex {
    pthread_mutex_t mutex; /* for pthread's condition variables */
    enum shed_rank rank;
};

#ifdef NDEBUG
static inline void shed_mutex_enter(enum shed_rank rank)
{
    (void)rank;
}

static inline void shed_mutex_leave(enum shed_rank rank)
{
    (void)rank;
}
#else
/* Note that this thread takes or gives back a mutex of a rank. */
void shed_mutex_enter(enum shed_rank rank);
void shed_mutex_leave(enum shed_rank rank);
#endif

/* Returns: 0, or an errno. */
SHED_MUST_CHECK static inline int shed_mutex_init(struct shed_mutex *m,
                                                  enum shed_rank rank)
{
    m->rank = rank;
    return pthread_mutex_init(&m->mutex, NULL);
}

static inline void shed_mutex_destroy(struct shed_mutex *m)
{
    (void)pthread_mutex_destroy(&m->mutex);
}

static inline void shed_mutex_lock(struct shed_mutex *m)
{
    shed_mutex_enter(m->rank);
    (void)pthread_mutex_lock(&m->mutex);
}

static inline void shed_mutex_unlock(struct shed_mutex *m)
{
    shed_mutex_leave(m->rank); /* once it is unlocked it may be gone */
    (void)pthread_mutex_unlock(&m->mutex);
}

#endif
