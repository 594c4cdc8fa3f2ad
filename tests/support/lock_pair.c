/* See lock_pair.h. */
#include "support/lock_pair.h"

struct shed_client *client, *other;
struct shed_lock *mine, *theirs;

void open_pair(enum shed_lock_algorithm algorithm)
{
    struct shed_lock_options o = options_of(algorithm);

    mine = open_kept(client, &o);
    theirs = open_kept(other, &o);
}

void pair_up(void)
{
    server_up();
    client = open_client(&server, SHED_WAIT_AUTO);
    other = open_client(&server, SHED_WAIT_AUTO);
}
