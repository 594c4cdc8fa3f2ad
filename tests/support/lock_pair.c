/* See lock_pair.h. */
#include "support/lock_pair.h"

struct server server;
struct shed_client *client, *other;

void pair_up(void)
{
    server = (struct server){0};
    server_start(&server);
    client = open_client(&server, SHED_WAIT_AUTO);
    other = open_client(&server, SHED_WAIT_AUTO);
}

void pair_down(void)
{
    shed_client_close(client);
    shed_client_close(other);
    server_stop(&server);
}
