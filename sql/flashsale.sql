-- What the flash sale of demo/locks sells: one row of flashsale_item per sale, and the orders.
-- The program empties both tables. Works on MySQL 8 and MariaDB.
CREATE TABLE IF NOT EXISTS flashsale_item (
    id     BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    strategy    ENUM('none', 'expire', 'snowshed') NOT NULL,
    pieces BIGINT UNSIGNED NOT NULL, -- at the beginning
    stock  BIGINT          NOT NULL  -- signed: -1 must show, not be refused
) ENGINE = InnoDB;

-- token: the fencing number of the hold under which it was sold, 0 for none.
CREATE TABLE IF NOT EXISTS flashsale_order (
    id    BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    item  BIGINT UNSIGNED NOT NULL,
    buyer BIGINT UNSIGNED NOT NULL,
    token BIGINT UNSIGNED NOT NULL,
    UNIQUE KEY one_per_buyer (item, buyer)
) ENGINE = InnoDB;
