-- Store a row that the caller has committed; ends leases as invalidate does.
-- KEYS  1 the key   2 the key of its refresh lease
-- ARGV  1 head   2 tail   3 payload   4 ttl, ms
-- Returns 1

redis.call('UNLINK', KEYS[2])
store(ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]))
return 1
