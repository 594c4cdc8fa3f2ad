-- The item catalogue that the load test reads. Works on MySQL 8 and MariaDB.
CREATE TABLE IF NOT EXISTS item (
    id          BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    name        VARCHAR(80)     NOT NULL,
    price_cents INT UNSIGNED    NOT NULL,
    stock       INT UNSIGNED    NOT NULL,
    description VARCHAR(255)    NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
