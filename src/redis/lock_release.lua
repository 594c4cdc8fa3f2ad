-- Release a lock, and leave the queue.
-- KEYS  1 the lock   2 the mark that others wait; of a fair lock: the queue
-- ARGV  1 token   2 the handle
--       only with a queue: 3 how long the caller waits, ms   4 its process
--       (behind them is the call's number: without a queue it is the third)
-- Returns 1 if the token had the lock; 2 if, besides, another handle waits for
--         it and there is no queue; 0 if the token did not have it

local reply = ARGV[4] and leave(KEYS[2], ARGV[1], ARGV[4], ARGV[3]) or 0
if not is_held_by(KEYS[1], ARGV[1]) then
    return type(reply) == 'number' and 0 or reply
end
redis.call('DEL', KEYS[1])
if ARGV[4] then return 1 end
-- whatever is at the key of the mark, the lock has been released
local waiter = redis.pcall('GET', KEYS[2])
return type(waiter) == 'string' and waiter ~= ARGV[2] and 2 or 1
