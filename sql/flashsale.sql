-- What demo/flashsale sells: a row of flashsale_item per sale, and its orders.
-- The program empties both. Works on MySQL 8 and MariaDB.
CREATE TABLE IF NOT EXISTS flashsale_item (
    id     BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    way    ENUM('none', 'expire', 'snowshed') NOT NULL,
    pieces BIGINT UNSIGNED NOT NULL, -- at the beginning
    stock  BIGINT          NOT NULL  -- signed: -1 is to be seen, not refused
) ENGINE = InnoDB;

-- token: the fencing number of the hold under which it was sold; 0: none.
CREATE TABLE IF NOT EXISTS flashsale_order (
    id    BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    item  BIGINT UNSIGNED NOT NULL,
    buyer BIGINT UNSIGNED NOT NULL,
    token BIGINT UNSIGNED NOT NULL,
    UNIQUE KEY one_per_buyer (item, buyer)
) ENGINE = InnoDB;
