-- Prolong a lock to a whole lease from now, if the token still has it.
-- A lease of 0 keeps its end.
-- Returns 1 if the token had it, else 0, also where it has now taken it: then it
-- may have been another's meanwhile
-- PEXPIRE comes first: it needs no memory, and after a write Redis lets a
-- script exceed its memory, so the record, whose size stays the same, can be
-- rewritten too. If that is refused all the same, the next renewal tries again.

local record = MAGIC .. token .. process .. run
local held = read()
if not held and least == '1' and lease ~= '0' then
    redis.pcall('SET', K, record, 'PX', lease)
end
if type(held) ~= 'table' or held.token ~= token then return 0 end
lease = tonumber(lease)
if lease == 0 then lease = redis.call('PTTL', K) end
if lease > 0 then redis.call('PEXPIRE', K, whole(lease)) end
if held.process ~= process or held.run ~= run then
    redis.pcall('SET', K, record, 'KEEPTTL')
end
return 1
