-- Release a lock, and leave the queue.
-- Returns 1 if the token had the lock; 2 if, besides, another handle waits for
--         it and there is no queue; 0 if the token did not have it

local reply = wait ~= '' and leave() or 0
local held = read()
if type(held) ~= 'table' or held.token ~= token then
    return type(reply) == 'number' and 0 or reply
end
redis.call('DEL', K)
if wait ~= '' then return 1 end
-- whatever is at the key of the mark, the lock has been released
local waiter = redis.pcall('GET', MARK)
return type(waiter) == 'string' and waiter ~= handle and 2 or 1
