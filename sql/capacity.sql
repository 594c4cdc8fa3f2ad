-- A database of limited capacity, for the demos: a query that calls db_work
-- works in one of its lane's slots, so that at most `slots` of them work at a
-- time; the others wait inside the server, as they do in a machine of so many
-- cores. Works on MySQL 8 and MariaDB from 10.5. It contains DELIMITER, so load
-- it with the command-line client.
--
-- Rights: to load it CREATE, SELECT, INSERT, UPDATE, CREATE ROUTINE and ALTER
-- ROUTINE; if the server writes a binary log also SUPER, or the server's setting
-- log_bin_trust_function_creators = 1. To use it EXECUTE.
CREATE TABLE IF NOT EXISTS db_capacity (
    lane    VARCHAR(32)  NOT NULL PRIMARY KEY,
    slots   INT UNSIGNED NOT NULL, -- 0: no limit
    cost_us INT UNSIGNED NOT NULL  -- how long a query works
) ENGINE = InnoDB;

-- At least the slots 0 to slots - 1 of each lane.
CREATE TABLE IF NOT EXISTS db_slot (
    lane VARCHAR(32)  NOT NULL,
    n    INT UNSIGNED NOT NULL,
    PRIMARY KEY (lane, n)
) ENGINE = InnoDB;

DROP PROCEDURE IF EXISTS set_capacity;
DROP FUNCTION IF EXISTS db_work;

DELIMITER //

-- Make a lane, or change it at any time: queries that already wait keep the old
-- cost. Slots are added, never removed, because a query may wait for one.
CREATE PROCEDURE set_capacity(IN of_lane VARCHAR(32), IN new_slots INT UNSIGNED,
                              IN new_cost_us INT UNSIGNED)
    MODIFIES SQL DATA
BEGIN
    DECLARE next_n INT UNSIGNED;

    -- not in DECLARE, nor by SET, where a subquery locks what it reads
    SELECT COUNT(*) INTO next_n FROM db_slot WHERE lane = of_lane;
    WHILE next_n < new_slots DO
        INSERT IGNORE INTO db_slot VALUES (of_lane, next_n);
        SET next_n = next_n + 1;
    END WHILE;
    INSERT INTO db_capacity VALUES (of_lane, new_slots, new_cost_us)
        ON DUPLICATE KEY UPDATE slots = new_slots, cost_us = new_cost_us;
END //

-- Wait for one of the lane's slots and work in it. A lane that does not exist
-- costs nothing. Returns 1. Call it once in a query, in autocommit: a slot is
-- the lock on its row, which ends with the statement, also when that is killed.
--
-- Which slot: one whose user-level lock is free. If none is, queries queue for
-- the slots in turn (UUID_SHORT is a counter), so that the queues are of one
-- length. User-level locks only serve to find a free slot, because they outlive a
-- killed query, until its session works again or ends. SKIP LOCKED would be
-- simpler, but MySQL ignores it inside functions.
--
-- A query that calls it counts as two in Com_select, and the session's own
-- user-level locks end.
CREATE FUNCTION db_work(of_lane VARCHAR(32)) RETURNS INT
    NOT DETERMINISTIC READS SQL DATA
BEGIN
    DECLARE most, work_us, mine INT UNSIGNED DEFAULT 0;
    DECLARE prefix VARCHAR(64);

    -- MAX: NULL where there is no row
    SELECT MAX(slots), MAX(cost_us) INTO most, work_us
        FROM db_capacity WHERE lane = of_lane;
    IF most > 0 THEN
        DO RELEASE_ALL_LOCKS();
        SET prefix = CONCAT('db_slot ',
                            CRC32(CONCAT(DATABASE(), '.', of_lane)), ' ');
        WHILE mine < most AND GET_LOCK(CONCAT(prefix, mine), 0) = 0 DO
            SET mine = mine + 1;
        END WHILE;
        IF mine = most THEN
            SET mine = UUID_SHORT() MOD most;
        END IF;
        SET mine = (SELECT n FROM db_slot
                    WHERE lane = of_lane AND n = mine FOR UPDATE);
        DO GET_LOCK(CONCAT(prefix, mine), 0);
    END IF;
    IF work_us > 0 THEN
        DO SLEEP(work_us / 1e6);
    END IF;
    IF most > 0 THEN
        DO RELEASE_ALL_LOCKS();
    END IF;
    RETURN 1;
END //

DELIMITER ;
