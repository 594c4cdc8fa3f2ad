-- Give back, keep and take slots of a budget of loads that many processes share.
-- Each slot is a member of a sorted set, its score the time when it ends at the
-- latest; one who has asked in vain is a member whose score is negative. A slot is
-- the name of the one that has it and a number.
-- These times are of a clock of the set. It goes on as the server's does, but
-- never back, and at most by what has passed for the process that asks since it
-- was answered before. So a step of the server's clock neither prolongs a slot nor
-- ends it early. Two members, 'wall' and 'time', are the two clocks' last readings.
-- Two more members count the two kinds. With them nothing is read: the server
-- tracks what is read, and would announce each change of the set.
-- The two have to be right, so each command is first made without an effect: one
-- that the server refuses then ends the script before anything has changed.
-- KEYS  1 the set
-- ARGV  1 who asks   2 the budget   3 how long a slot lasts, ms
--       4 the ms since the asking process was answered before
--       5 6 slots to give back, from this number up to that one, without it
--       7 8 slots to keep: they last for that long from now, and are taken if
--       they are not there   9 how many to take: the numbers from the eighth on
-- Returns {how many were taken, the slots in use, how many wait for one}

local WAIT_MS = 300 -- those that wait ask again within 200 ms
local COUNTS = 1000000 -- the counts stay below it, and times are above it
local LIFE_MS = 7200000 -- no slot lasts longer: load_timeout_ms is up to an hour
local SET_MS = 604800000 -- a smaller step of the clock does not end the set
local CLOCK = 2 ^ 41 -- readings divided by this are below the counts
local function number(i) return tonumber(ARGV[i]) end
local budget, wall = number(2), clock()

local function write(command, ...)
    return tonumber(redis.call(command, K, ...))
end
local function id(n) return ARGV[1] .. string.format('%08x', n) end
local function count(name, change)
    return write('ZADD', 'INCR', whole(change), name)
end
-- The clock of this name, after so many ms; 0 if it is not there yet.
local function advance(name, ms)
    return write('ZADD', 'INCR', string.format('%.17g', ms / CLOCK), name) * CLOCK
end

write('ZREM', '')
write('PEXPIRE', SET_MS)
write('ZREMRANGEBYSCORE', 1, 0)
count('slots', 0)

local before, passed = advance('wall', 0), number(4)
local step = advance('wall', wall - before) - before
if before > 0 then step = math.max(0, math.min(step, passed)) end
local now = advance('time', step)
local function last(n)
    return write('ZADD', whole(now + number(3)), id(n))
end

-- a slot that ends too late is not ours
local change = -write('ZREMRANGEBYSCORE', COUNTS, whole(now))
    - write('ZREMRANGEBYSCORE', '(' .. whole(now + LIFE_MS), '+inf')
for n = number(5), number(6) - 1 do change = change - write('ZREM', id(n)) end
for n = number(7), number(8) - 1 do change = change + last(n) end
local used, taken, asked = count('slots', change), 0, number(9)
for n = number(8), number(8) + asked - 1 do
    if used + taken < budget then taken = taken + last(n) end
end
if taken > 0 then used = count('slots', taken) end

change = -write('ZREMRANGEBYSCORE', whole(-now), -COUNTS)
    - write('ZREMRANGEBYSCORE', '-inf', '(' .. whole(-now - LIFE_MS))
if asked > taken then
    change = change + write('ZADD', whole(-now - WAIT_MS), ARGV[1])
elseif taken > 0 then
    change = change - write('ZREM', ARGV[1])
end
local waiting = count('waiting', change)
if used == 0 and waiting == 0 then
    redis.call('UNLINK', K)
else
    redis.call('PEXPIRE', K, SET_MS)
end
return {taken, used, waiting}
