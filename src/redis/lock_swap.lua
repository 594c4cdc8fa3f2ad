-- Renew a plain lock, or remove it, if its value is still ours.
-- KEYS  1 the lock
-- ARGV  1 what we set   2 the new value; empty: remove it
--       3 lease, ms, if the value stays as it is; 0: no end
-- Returns 1 if it was ours, 0 if not
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
else
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
