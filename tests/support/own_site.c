/* See own_site.h. */
#include "support/own_site.h"

#include <signal.h>

struct own_database server;
struct site site;

void own_site_install(void)
{
    own_database_install(&server);
}

void own_site_remove(void)
{
    own_database_remove(&server);
}

void own_site_up(void)
{
    own_database_start(&server);
    open_site(&site, server.uri);
    make_words(&site);
}

void own_site_down(void)
{
    mysql_close(site.admin);
    own_database_signal(&server, SIGKILL);
}
