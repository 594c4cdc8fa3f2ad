-- What shed_mysql_fence (snowshed/mysql.h) records: the newest fencing token of
-- each resource. It must stand in the database that the connection uses, and be
-- InnoDB's: elsewhere a ROLLBACK takes nothing back. The guard only adds rows;
-- delete one when nobody holds or will hold its lock. Works on MySQL 8 and
-- MariaDB.
CREATE TABLE IF NOT EXISTS snowshed_fence (
    resource VARBINARY(255)  NOT NULL PRIMARY KEY,
    number   BIGINT UNSIGNED NOT NULL,
    owner    BINARY(16)      NOT NULL
) ENGINE = InnoDB;
