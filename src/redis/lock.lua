-- Prepended to each lock_*.lua: how the record of a lock is read and made. It
-- is 'LK1', the holder's token (16 bytes), the process that is alive as long as
-- somebody is subscribed to its channel (16 hexadecimal digits, or 16 blanks),
-- and the run id of the server on which that was so (16 bytes).

-- Redis 6 refuses a write after TIME without this; newer ones always do it.
if redis.replicate_commands then redis.replicate_commands() end

local MAGIC = 'LK1'
local SIZE = 51

local function us()
    local t = redis.call('TIME')
    return t[1] * 1000000 + t[2]
end

local function whole(number) return string.format('%.0f', number) end

-- The record at key, as a table; nil if there is nothing. Any other string is
-- the lock of a foreign client, whose token we need not know: a table without a
-- token. 'wrong type' if it is not a string.
local function read(key)
    local bytes = redis.pcall('GET', key)
    if not bytes then return nil end
    if type(bytes) ~= 'string' then
        if string.find(bytes.err, 'WRONGTYPE', 1, true) then
            return 'wrong type'
        end
        error(bytes.err)
    end
    if #bytes ~= SIZE or string.sub(bytes, 1, 3) ~= MAGIC then return {} end
    return {
        token = string.sub(bytes, 4, 19),
        process = string.sub(bytes, 20, 35),
        run = string.sub(bytes, 36, 51),
    }
end

-- Leave the queue of a fair lock. A member of it is the token, the process as
-- in a record, and for how long it waits, ms. A waiter may have joined before
-- its process had a channel.
local NO_PROCESS = '                '
local function leave(queue, token, process, wait)
    redis.call('ZREM', queue, token .. process .. wait,
        token .. NO_PROCESS .. wait)
end

local function is_held_by(key, token)
    local held = read(key)
    return type(held) == 'table' and held.token == token
end

-- The counter of fencing numbers does not go below the server's clock, so it
-- grows even after it was lost. It is kept until the clock has been beyond it
-- for a day: that is how far the clock may be set back after it was lost.
local COUNTER_MS = '86400000'

-- Raise the counter to number at least, and with step '1' by one at least;
-- clock is us(). Only writes, so that the counter is not tracked. Returns it as
-- text (formatting a number costs as much as a command), or the error if it is
-- not a number; and its former value plus the step.
local function advance(counter, step, number, clock)
    local was = redis.pcall('INCRBY', counter, step)
    if type(was) == 'table' then return was end
    local now = math.max(was, number)
    local text, life = whole(now), COUNTER_MS
    if now > clock then life = whole(COUNTER_MS + (now - clock) / 1000) end
    redis.call('SET', counter, text, 'PX', life)
    return text, was
end
