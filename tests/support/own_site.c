/* See own_site.h. */
#include "support/own_site.h"

#include <signal.h>

struct own_mariadb server;
struct site site;

void own_site_install(void)
{
    own_mariadb_install(&server);
}

void own_site_remove(void)
{
    own_mariadb_remove(&server);
}

void own_site_up(void)
{
    own_mariadb_start(&server);
    open_site(&site, server.uri);
    make_words(&site);
}

void own_site_down(void)
{
    mysql_close(site.admin);
    own_mariadb_signal(&server, SIGKILL);
}
