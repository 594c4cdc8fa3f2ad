-- Store a row that the caller has committed; ends leases as invalidate does.
-- KEYS  1 the key   2 the key of its refresh lease
-- ARGV  1 head   2 tail   3 payload   4 how long it is fresh, ms   5 ttl, ms
-- Returns 1; or, if the row was refused (out of memory), the error, after the
--         old value was removed, because it is older than the row
-- UNLINK comes last: after a write, Redis lets a script exceed its memory.

local stored = redis.pcall('SET', K, entry(ARGV[1], ARGV[2], ARGV[3],
    tonumber(ARGV[4])), 'PX', ARGV[5])
redis.call('UNLINK', KEYS[2])
if stored.err then
    redis.call('UNLINK', K)
    return stored
end
return 1
