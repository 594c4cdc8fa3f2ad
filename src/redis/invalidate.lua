-- Remove whatever a key holds: a value, or the lease of a load under way, which
-- ends its data version. A plain DEL by any client does the same.
-- KEYS  1 the key   2 the key of its refresh lease
-- Returns the number of keys that existed

return redis.call('UNLINK', K, KEYS[2])
