/* See lock_pair.h. */
#include "support/lock_pair.h"

struct shed_client *client, *other;

void pair_up(void)
{
    server_up();
    client = open_client(&server, SHED_WAIT_AUTO);
    other = open_client(&server, SHED_WAIT_AUTO);
}

void pair_down(void)
{
    close_client(client);
    close_client(other);
    server_down();
}
