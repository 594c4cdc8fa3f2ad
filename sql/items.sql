-- 100,000 items with the ids 1 to 100000, always the same, because every column
-- is a function of the id. One INSERT joins five tables of ten digits.
DELETE FROM item;
INSERT INTO item (id, name, price_cents, stock, description)
SELECT n.id,
       CONCAT(ELT(1 + n.id % 7, 'Lamp', 'Chair', 'Kettle', 'Rope', 'Sled',
                  'Boot', 'Map'), ' no. ', n.id),
       100 + n.id * 7919 % 99900,
       n.id * 104729 % 500,
       IF(n.id % 50 = 0, NULL, CONCAT('Made for the road under the slope, lot ',
                                      n.id % 997, ', shelf ', n.id % 83))
FROM (SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d AS id
      FROM (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3
            UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7
            UNION SELECT 8 UNION SELECT 9) AS a
      CROSS JOIN (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3
            UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7
            UNION SELECT 8 UNION SELECT 9) AS b
      CROSS JOIN (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3
            UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7
            UNION SELECT 8 UNION SELECT 9) AS c
      CROSS JOIN (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3
            UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7
            UNION SELECT 8 UNION SELECT 9) AS d
      CROSS JOIN (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3
            UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7
            UNION SELECT 8 UNION SELECT 9) AS e) AS n;
