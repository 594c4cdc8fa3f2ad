-- Make the value of a key stale in a while, or from now on. Whatever may not be
-- served stale, including the lease of a load under way, is removed as by invalidate.
-- A refresh under way ends, because it may have read the row earlier.
-- KEYS  1 the key   2 the key of its refresh lease
-- ARGV  1 in how many ms; 0: now
-- Returns 1 if the value stays and may be served stale; 0 if not, or if none exists
-- UNLINK comes first: it needs no memory, and after a write Redis lets a script
-- exceed its memory, so the time, whose size stays the same, can be rewritten too.

redis.call('UNLINK', KEYS[2])
local kind, bytes = read(K)
if kind ~= 'V' or lease(bytes).until_ms == 0 then
    redis.call('UNLINK', K)
    return 0
end
local until_ms = clock() + tonumber(ARGV[1])
if until_ms < lease(bytes).until_ms then
    redis.call('SETRANGE', K, UNTIL_OFFSET, struct.pack('>I8', until_ms))
end
return 1
