/* The MySQL source; its interface is include/snowshed/mysql.h. */
#ifndef SHED_MYSQL_SOURCE_H
#define SHED_MYSQL_SOURCE_H

#include <snowshed/mysql.h>

#endif
