-- What bench_overload asks for: 100000 rows, and what a query computes on.
DROP TABLE IF EXISTS overload_row, overload_work;
CREATE TABLE overload_row (id INT UNSIGNED NOT NULL PRIMARY KEY)
    ENGINE = InnoDB SELECT seq AS id FROM seq_1_to_100000;
CREATE TABLE overload_work (id INT UNSIGNED NOT NULL PRIMARY KEY,
                            text VARCHAR(64) NOT NULL)
    ENGINE = InnoDB SELECT seq AS id, MD5(seq) AS text FROM seq_1_to_8000;
