-- The orders that demo/hotitems takes. idempotency_key is the client's: a
-- repeated request finds the order that the first one placed. token is the
-- fencing token of the hold under which the pieces were taken. Works on MySQL 8
-- and MariaDB.
CREATE TABLE IF NOT EXISTS item_order (
    id              BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    item            BIGINT UNSIGNED NOT NULL,
    quantity        INT UNSIGNED    NOT NULL,
    token           BIGINT UNSIGNED NOT NULL,
    idempotency_key VARBINARY(64)   NOT NULL,
    UNIQUE KEY once (idempotency_key),
    KEY by_item (item)
) ENGINE = InnoDB;
