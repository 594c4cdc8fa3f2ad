-- Remove whatever stands at a key: a value, or the lease of a load under way,
-- which ends its data version. A plain DEL by anybody does the same.
-- KEYS  1 the key   2 the key of its refresh lease
-- Returns the number of keys that stood there

return redis.call('UNLINK', K, KEYS[2])
