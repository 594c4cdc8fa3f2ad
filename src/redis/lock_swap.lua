-- Renew a plain lock, remove it, or take one without a time to live, whose holder
-- died between SETNX and EXPIRE. This is atomic, so only one of the clients that
-- see such a lock gets it.
-- KEYS  1 the lock
-- ARGV  1 its value: what we set, or what we have seen
--       2 the new value; empty: remove it   3 lease, ms; 0: no end
-- Returns 1 if that is done; 0 if the value is another, or if a new one with a
--         lease finds a time to live
-- PEXPIRE needs no memory, and after a write Redis lets a script exceed its
-- memory, so a lock whose value changes can be renewed without memory too. SET
-- removes the time to live again. If SET is refused for another reason, the lock
-- keeps its value and gets no end.

local WHILE_MS = 86400000 -- the longest lease

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
    redis.call('DEL', KEYS[1])
elseif ARGV[3] == '0' then
    local done = redis.pcall('SET', KEYS[1], ARGV[2])
    if done.err then
        if not string.find(done.err, 'OOM', 1, true) then return done end
        redis.call('PEXPIRE', KEYS[1], WHILE_MS)
        redis.call('SET', KEYS[1], ARGV[2])
    end
elseif ARGV[2] == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif redis.call('PTTL', KEYS[1]) == -1 then
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
else
    return 0
end
return 1
