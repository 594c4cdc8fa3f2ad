-- Say how many slots of a budget of loads a process has, and how many it wants. Many
-- processes share the budget. A call that is made again changes nothing more.
-- Each process with slots is a member of a sorted set, NAME:SLOTS; the score is the
-- time when they end at the latest. One that wants more than it has is a member of
-- its own, NAME; the score is minus the time when it no longer counts as waiting. So
-- only members with slots are read, about as many as the budget.
-- These times are of a clock of the set. It goes on as the server's does, but
-- never back, and at most by what has passed for the process that asks since it
-- was answered before. So a step of the server's clock neither prolongs a slot nor
-- ends it early. Two members, 'wall' and 'time', are the two clocks' last readings.
-- The call is made where the server tracks nothing: it would announce each change
-- of the set to every process that has asked.
-- KEYS  1 the set
-- ARGV  1 who asks   2 the budget   3 how long its slots last, ms
--       4 the ms since the asking process was answered before
--       5 the slots that it has, whatever the budget is   6 how many it wants
-- Returns {how many it has now, the slots in use, how many others wait for one}

local SET_MS = 604800000 -- a smaller step of the clock does not end the set
local WAIT_MS = 300 -- a process that waits asks again within 200 ms
local who, keep, want = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6])

local ends = {} -- and the two clocks
local all = redis.call('ZRANGEBYSCORE', K, 0, '+inf', 'WITHSCORES')
for i = 1, #all, 2 do ends[all[i]] = tonumber(all[i + 1]) end

local wall = clock()
local step = math.min(wall - (ends.wall or wall), tonumber(ARGV[4]))
local now = (ends.time or 0) + math.max(0, step)
ends.wall, ends.time = nil, nil

-- First, and without an effect: where the server refuses these, nothing has changed.
-- ZREM needs no memory, and after a write Redis lets a script exceed its memory.
redis.call('PEXPIRE', K, SET_MS)
redis.call('ZREM', K, '')
redis.call('ZREMRANGEBYSCORE', K, whole(-now), '(0')
local waiting = redis.call('ZCOUNT', K, '-inf', '(0') - redis.call('ZREM', K, who)
local used = 0
for member, last in pairs(ends) do
    local name, slots = string.match(member, '^(.*):(%d+)$')
    if not name or name == who or last <= now then
        redis.call('ZREM', K, member)
    else
        used = used + tonumber(slots)
    end
end
local slots = math.max(keep, math.min(want, tonumber(ARGV[2]) - used))

if slots > 0 then
    redis.call('ZADD', K, whole(now + tonumber(ARGV[3])), who .. ':' .. whole(slots))
end
if slots < want then
    redis.call('ZADD', K, whole(-now - WAIT_MS), who)
elseif used + slots + waiting == 0 then
    redis.call('UNLINK', K)
    return {0, 0, 0}
end
redis.call('ZADD', K, whole(wall), 'wall', whole(now), 'time')
redis.call('PEXPIRE', K, SET_MS)
return {slots, used + slots, waiting}
