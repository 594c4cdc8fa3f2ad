-- Prepended to each lock_*.lua: reads and writes the record of a lock. The
-- record is 'LK1', the holder's token (16 bytes), the holder's process, which is
-- alive while somebody is subscribed to its channel (16 hexadecimal digits, or 16
-- blanks), and the run id of the server where it was subscribed (16 bytes).
--
-- All scripts of LEASE have the same keys and arguments, and use some of them:
-- KEYS  1 the lock   2 its counter of fencing numbers   3 suspicion
--       4 the mark that others wait   of a fair lock: 5 its queue   6 offer
-- ARGV  1 token (16 bytes)   2 the asking handle (any bytes)
--       3 process   4 run id, as in the record
--       5 lease, ms   6 grace, ms; 0: a holder is never taken for dead
--       7 of a fair lock: how long the caller waits, ms; else any
--       8 the number to advance to; of an extension 1: take a free lock

local _, COUNTER, SUSPICION, MARK, QUEUE, OFFER = unpack(KEYS)
local token, handle, process, run, lease, grace, wait, least = unpack(ARGV)
if not QUEUE then wait = '' end

local MAGIC = 'LK1'

-- The record of the lock, as a table; nil if there is nothing. Any other string
-- is the lock of a foreign client: a table without a token, which we need not
-- know. 'wrong type' if it is not a string.
local function read()
    local bytes = get(K)
    if bytes == nil then return nil end
    if not bytes then return 'wrong type' end
    if #bytes ~= 3 + 3 * 16 or string.sub(bytes, 1, 3) ~= MAGIC then return {} end
    return {
        token = string.sub(bytes, 4, 19),
        process = string.sub(bytes, 20, 35),
        run = string.sub(bytes, 36, 51),
    }
end

-- Leave the queue of a fair lock; others do without this function, because to
-- make one costs as much as a command. A member of the queue is the token, the
-- process as in a record, and how long it waits, in ms. A waiter may join
-- before its process has a channel. Returns a number, or the error.
local NO_PROCESS = '                '
local leave = wait ~= '' and function()
    return redis.pcall('ZREM', QUEUE, token .. process .. wait,
        token .. NO_PROCESS .. wait)
end
