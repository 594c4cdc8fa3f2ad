-- The products of demo/hello/service.c. Each UPDATE of a row increments its version.
CREATE TABLE IF NOT EXISTS product (
    id          BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    shop_id     INT UNSIGNED    NOT NULL,
    name        VARCHAR(80)     NOT NULL,
    cents       INT UNSIGNED    NOT NULL,
    version     BIGINT UNSIGNED NOT NULL DEFAULT 1,
    INDEX (shop_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
REPLACE INTO product (id, shop_id, name, cents) VALUES
    (1, 1, 'Lamp', 1900), (2, 1, 'Chair', 4900),
    (3, 2, 'Kettle', 2900), (4, 2, 'Rope', 700);
