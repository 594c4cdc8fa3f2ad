-- Prolong a lock to a whole lease from now, if the token still has it.
-- KEYS  1 the lock
-- ARGV  1 token   2 process   3 run id   4 lease, ms; 0: keep its end
-- Returns 1 if the token had it, 2 if nobody has it, 0 if another has it
-- PEXPIRE comes first: it needs no memory, and after a write Redis lets a
-- script exceed its memory, so the record, whose size stays the same, can be
-- rewritten too. If that is refused all the same, the next renewal tries again.

local held = read(KEYS[1])
if not held then return 2 end
if type(held) ~= 'table' or held.token ~= ARGV[1] then return 0 end
local lease = tonumber(ARGV[4])
if lease == 0 then lease = redis.call('PTTL', KEYS[1]) end
if lease > 0 then redis.call('PEXPIRE', KEYS[1], whole(lease)) end
if held.process ~= ARGV[2] or held.run ~= ARGV[3] then
    redis.pcall('SET', KEYS[1], MAGIC .. ARGV[1] .. ARGV[2] .. ARGV[3],
        'KEEPTTL')
end
return 1
