-- Prolong a lock to a whole lease from now, if the token still has it.
-- A lease of 0 keeps its end.
-- Returns 1 if the token had it, else 0
-- PEXPIRE comes first: it needs no memory, and after a write Redis lets a
-- script exceed its memory, so the record, whose size stays the same, can be
-- rewritten too. If that is refused all the same, the next renewal tries again.

local held = read()
if type(held) ~= 'table' or held.token ~= token then return 0 end
lease = tonumber(lease)
if lease == 0 then lease = redis.call('PTTL', K) end
if lease > 0 then redis.call('PEXPIRE', K, whole(lease)) end
if held.process ~= process or held.run ~= run then
    redis.pcall('SET', K, MAGIC .. token .. process .. run, 'KEEPTTL')
end
return 1
