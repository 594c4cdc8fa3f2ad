/*
 * Do something that only one process may do at a time. Start it in several
 * terminals: each waits for the one before it, for at most ten seconds.
 *
 *     cc lock.c -o lock $(pkg-config --cflags --libs snowshed)
 *     ./lock [REDIS-URI]
 *
 * A process that is stopped for longer than the lease can resume when another
 * has the lock. If that would do harm, see lock_with_fence.c.
 */
#include <snowshed/lock.h>
#include <snowshed/snowshed.h>
#include <stdio.h>
#include <unistd.h>

static enum shed_code work_alone(struct shed_lock *lock, struct shed_error *err)
{
    if (shed_lock_acquire(lock, 10000, err)) /* waits for at most 10 s */
        return err->code;
    puts("working alone"); /* a watchdog renews the lock meanwhile */
    sleep(1);
    if (!shed_lock_is_mine(lock)) /* cheap: it asks no server */
        puts("the lock was lost");
    /* this also fails if the lock was lost before the work was done */
    return shed_lock_release(lock, err);
}

int main(int argc, char **argv)
{
    struct shed_client_options options = SHED_CLIENT_OPTIONS_INIT;
    struct shed_client *client = NULL;
    struct shed_lock *lock = NULL;
    struct shed_error err = {SHED_OK, ""};

    options.on_log = shed_log_stderr; /* says if there is no Redis */
    if (shed_client_open(argc > 1 ? argv[1] : "redis://localhost", &options,
                         &client, &err) ||
        shed_lock_open(client, shed_str("report"), NULL, &lock, &err) ||
        work_alone(lock, &err))
        fprintf(stderr, "%s: %s\n", shed_code_name(err.code), err.reason);
    else
        puts("done");
    shed_lock_close(lock);
    shed_client_close(client);
    return err.code == SHED_OK ? 0 : 1;
}
