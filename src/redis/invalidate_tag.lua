-- Note in a cache's log that everything, or every entry with a tag, which was
-- loaded before now is a miss. The log is a sorted set: its members are tags, and
-- the empty one, which is "everything"; a member's score is its position, which
-- only grows.
-- KEYS  1 the log
-- ARGV  1 the tag; '' is everything
--       2 the most tags that the log keeps. Beyond that the oldest becomes
--         "everything", which can only make more entries misses
--       3 the highest position that the caller knows of, which the new one has to
--         exceed, or 0
--       4 'restore' if the caller has found no such position in the log: nothing
--         is done if there is a higher one by now
-- Returns the position, or the highest that is there: above every earlier one, and
--         not below the clock, in microseconds. It is not above the caller's if
--         that is more than a day ahead of the clock: then the caller has it from
--         a clock or a log that was wrong. An error if the log has such a score, or
--         one that is no position, because all later ones would have to be above it
-- The first ZREM removes nothing. It needs no memory, and after a write Redis lets
-- a script exceed its memory.
-- Nothing is removed before the server has taken the new position: a server that
-- refused it (without the right to ZADD, say) would have forgotten the earlier ones.

local AHEAD = 24 * 60 * 60 * 1000000 -- of the clock; what a wrong one may be off by
local TOO_LONG = string.rep('-', 251) -- for a tag
local tag, limit, known = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local last = tonumber(redis.call('ZRANGE', K, -1, -1, 'WITHSCORES')[2] or 0)
local now = us()
if last % 1 ~= 0 or last > now + AHEAD then
    return redis.error_reply('ERR the score of a member of ' .. K ..
        ' is no position, or more than a day ahead of the clock: delete ' .. K)
end
if ARGV[4] == 'restore' and last > known then return last end
if known > now + AHEAD then known = 0 end
local position = math.max(now, last + 1, known + 1)
local text = whole(position)

redis.call('ZREM', K, TOO_LONG)
redis.call('ZADD', K, text, tag)
if tag == '' then
    redis.call('UNLINK', K)
    redis.call('ZADD', K, text, tag)
end

local old = redis.call('ZRANGE', K, 0, -limit - 2, 'WITHSCORES')
for i = 1, #old, 2 do redis.call('ZREM', K, old[i]) end
if #old > 0 then redis.call('ZADD', K, old[#old], '') end
return position
