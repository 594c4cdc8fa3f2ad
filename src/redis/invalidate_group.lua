-- Note in a cache's log that everything, or every entry with a tag, which was
-- loaded before now is a miss. The log is a sorted set: its members are tags, and
-- the empty one, which is "everything"; a member's score is its position, which
-- only grows.
-- KEYS  1 the log
-- ARGV  1 the tag; '' is everything
--       2 the most tags that the log keeps. Beyond that the oldest becomes
--         "everything", which can only make more entries misses
--       3 a position that the new one has to exceed, or 0
-- Returns the position: above every earlier one, and not below the clock, in
--         microseconds, so that it grows even if the log was lost; or an error if
--         the highest score is no position, because no next one would be above it
-- The first ZREM removes nothing. It needs no memory, and after a write Redis lets
-- a script exceed its memory.
-- Nothing is removed before the server has taken the new position: a server that
-- refused it (without the right to ZADD, say) would have forgotten the earlier ones.

local END = 2 ^ 53 -- positions are below it, where every integer is a double
local TOO_LONG = string.rep('-', 251) -- for a tag
local tag, limit = ARGV[1], tonumber(ARGV[2])
local last = tonumber(redis.call('ZRANGE', K, -1, -1, 'WITHSCORES')[2] or 0)
local now = redis.call('TIME')
local position = math.max(now[1] * 1000000 + now[2], last + 1,
    tonumber(ARGV[3]) + 1)
if last % 1 ~= 0 or position >= END then
    return redis.error_reply('ERR the score of a member of ' .. K ..
        ' is no position: delete it, and invalidate all entries')
end
local text = string.format('%.0f', position)

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
