-- What shed_mysql_fence (snowshed/mysql.h) records: the newest fencing token of
-- each resource. The table must be in the database that the connection uses,
-- and must use InnoDB: other engines ignore ROLLBACK. The guard only adds rows; a
-- row may be deleted when nobody holds or will hold its lock. Works on MySQL 8
-- and MariaDB.
CREATE TABLE IF NOT EXISTS snowshed_fence (
    resource VARBINARY(255)  NOT NULL PRIMARY KEY,
    number   BIGINT UNSIGNED NOT NULL,
    owner    BINARY(16)      NOT NULL
) ENGINE = InnoDB;
