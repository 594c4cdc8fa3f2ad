/* The fixtures of tests with a private MariaDB: install and remove it without
 * Check's checks, start and end it for each test. */
#ifndef OWN_SITE_H
#define OWN_SITE_H

#include "support/mysql_testing.h"
#include "support/own_database.h"

extern struct own_database server;
extern struct site site;

void own_site_install(void);
void own_site_remove(void);

/* Start the server, and open site, a database on it with the table word. */
void own_site_up(void);
void own_site_down(void);

#endif
