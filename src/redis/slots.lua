-- Give back, keep and take slots of a budget of loads that many processes share.
-- Each slot is a member of a sorted set, its score the time when it ends at the
-- latest; one who has asked in vain is a member whose score is negative.
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
--       4 slots to give back   5 slots to keep: they last for that long from now,
--       and are taken again if they were lost   6 slots to take, as many as
--       there are; each a string of ids   7 the ms since the asking process
--       was answered before
-- Returns {how many were taken, the slots in use, how many wait for one}

local ID = 24
local WAIT_MS = 300 -- those that wait ask again within 200 ms
local COUNTS = 1000000 -- the counts stay below it, and times are above it
local LIFE_MS = 7200000 -- no slot lasts longer: load_timeout_ms is up to an hour
local SET_MS = 604800000 -- a smaller step of the clock does not end the set
local CLOCK = 2 ^ 41 -- readings divided by this are below the counts
local budget, wall = tonumber(ARGV[2]), clock()

local function write(command, ...)
    return tonumber(redis.call(command, K, ...))
end
local function ids(list) return string.gmatch(list, string.rep('.', ID)) end
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

local before, passed = advance('wall', 0), tonumber(ARGV[7])
local step = advance('wall', wall - before) - before
if before > 0 then step = math.max(0, math.min(step, passed)) end
local now = advance('time', step)
local function last(id)
    return write('ZADD', whole(now + tonumber(ARGV[3])), id)
end

-- a slot that ends too late is not ours
local change = -write('ZREMRANGEBYSCORE', COUNTS, whole(now))
    - write('ZREMRANGEBYSCORE', '(' .. whole(now + LIFE_MS), '+inf')
for id in ids(ARGV[4]) do change = change - write('ZREM', id) end
for id in ids(ARGV[5]) do change = change + last(id) end
local used, taken = count('slots', change), 0
for id in ids(ARGV[6]) do
    if used + taken < budget then taken = taken + last(id) end
end
if taken > 0 then used = count('slots', taken) end

change = -write('ZREMRANGEBYSCORE', whole(-now), -COUNTS)
    - write('ZREMRANGEBYSCORE', '-inf', '(' .. whole(-now - LIFE_MS))
if #ARGV[6] > taken * ID then
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
