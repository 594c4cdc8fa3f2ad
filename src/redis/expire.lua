-- Let the value of a key be stale from now on. What may not be served stale, a
-- lease of a load under way included, is removed as by invalidate. A refresh under
-- way ends, because it may have read the row before.
-- KEYS  1 the key   2 the key of its refresh lease
-- Returns 1 if the value stays, to be served stale; 0 if not, or there was none
-- UNLINK comes first: it needs no memory, and after a write Redis lets a script
-- exceed its memory, so the time, which keeps its size, is rewritten too.

local UNTIL_OFFSET = 48 -- SETRANGE counts from 0
redis.call('UNLINK', KEYS[2])
local kind, bytes = read(K)
if kind ~= 'V' then
    redis.call('UNLINK', K)
    return 0
end
local now = clock()
if now < lease(bytes).until_ms then
    redis.call('SETRANGE', K, UNTIL_OFFSET, struct.pack('>I8', now))
end
return 1
