-- What the cinema of demo/locks sells: the seats of its showings, and what the card service
-- has charged. The program empties both tables. Works on MySQL 8 and MariaDB.
CREATE TABLE IF NOT EXISTS seat (
    id      BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    showing BIGINT UNSIGNED NOT NULL,
    buyer   BIGINT UNSIGNED NULL, -- NULL: not sold
    token   BIGINT UNSIGNED NULL, -- fencing number of the hold; 0: no hold
    KEY by_showing (showing, buyer)
) ENGINE = InnoDB;

-- No unique key on seat: that a seat is charged only once must not depend on it
-- (a real card service has none), and a double charge must show.
CREATE TABLE IF NOT EXISTS charge (
    id    BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    seat  BIGINT UNSIGNED NOT NULL,
    buyer BIGINT UNSIGNED NOT NULL,
    cents BIGINT UNSIGNED NOT NULL,
    token BIGINT UNSIGNED NOT NULL,
    KEY by_seat (seat)
) ENGINE = InnoDB;
