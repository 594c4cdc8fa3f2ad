-- Prepended to each lock_*.lua: reads and writes the record of a lock. The
-- record is 'LK1', the holder's token (16 bytes), the holder's process, which is
-- alive while somebody is subscribed to its channel (16 hexadecimal digits, or 16
-- blanks), and the run id of the server where it was subscribed (16 bytes).
--
-- All scripts of LEASE have the same keys and arguments, and use some of them:
-- KEYS  1 the lock   2 its counter of fencing numbers   3 suspicion
--       4 the queue of a fair lock   5 offer   6 the mark that others wait
-- ARGV  1 token (16 bytes)   2 process   3 run id, as in the record
--       4 lease, ms   5 grace, ms; 0: a holder is never taken for dead
--       6 the asking handle (any bytes)
--       7 of a fair lock: how long the caller waits, ms; else empty
--       8 the number to advance to; of an extension 1: take a free lock

local _, COUNTER, SUSPICION, QUEUE, OFFER, MARK = unpack(KEYS)
local token, process, run, lease, grace, handle, wait, least = unpack(ARGV)

local MAGIC = 'LK1'
local SIZE = 51

-- The record of the lock, as a table; nil if there is nothing. Any other string
-- is the lock of a foreign client: a table without a token, which we need not
-- know. 'wrong type' if it is not a string.
local function read()
    local bytes = get(K)
    if bytes == nil then return nil end
    if not bytes then return 'wrong type' end
    if #bytes ~= SIZE or string.sub(bytes, 1, 3) ~= MAGIC then return {} end
    return {
        token = string.sub(bytes, 4, 19),
        process = string.sub(bytes, 20, 35),
        run = string.sub(bytes, 36, 51),
    }
end

-- Leave the queue of a fair lock. A member of the queue is the token, the
-- process as in a record, and how long it waits, in ms. A waiter may join
-- before its process has a channel. Returns a number, or the error.
local NO_PROCESS = '                '
local function leave()
    return redis.pcall('ZREM', QUEUE, token .. process .. wait,
        token .. NO_PROCESS .. wait)
end

-- The counter of fencing numbers is never below the server's clock, so numbers
-- grow even after the counter was lost. It is kept until the clock has been
-- beyond it for a day, so the clock may be set back by up to a day without
-- harm.
local COUNTER_MS = '86400000'

-- Set the counter, whose clock is us(). Returns it as text (formatting a number
-- costs as much as a command); nil if NX forbids it.
local function set_counter(number, clock, ...)
    local text, life = whole(number), COUNTER_MS
    if number > clock then
        life = whole(COUNTER_MS + (number - clock) / 1000)
    end
    return redis.call('SET', COUNTER, text, 'PX', life, ...) and text
end

-- Raise the counter to at least number, and with step '1' by at least one.
-- Writes only, so that the counter is not tracked. INCRBY makes a counter where
-- there is none, and it stays there if SET is refused: so the right to SET must
-- be known. Returns two values: the counter as text, or the error if it is not a
-- number; and its former value plus the step.
local function advance(step, number, clock)
    local was = redis.pcall('INCRBY', COUNTER, step)
    if type(was) == 'table' then return was end
    return set_counter(math.max(was, number), clock), was
end
