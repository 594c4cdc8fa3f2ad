-- Take the lease of a key, or learn what the key holds.
-- KEYS  1 the key
-- ARGV  1 data version for a new record (16 bytes)
--       2 process id (16 hexadecimal digits)   3 flight number (8 bytes)
--       4 flags of the record (2 bytes)
--       5 lease, ms   6 life of the record, ms   7 grace, ms
--       8 the beginning of an entry that the caller saw to be corrupt, or ''
-- Returns {'LEAD', data version, how}, how being 'new', 'mine' (an earlier
--             reply was lost), 'foreign', 'corrupt' (replaced) or 'takeover'
--         {'HIT', entry}       a row or "no such row" is there
--         {'FAILED', entry}    a failure marker is there
--         {'WAIT', ms}         another holds the lease, for at most this long
-- One SET NX first: if the key is empty this saves a read, and a script that
-- reads nothing is not tracked, so only waiters get pushes. When Redis is out
-- of memory it is refused whatever the key holds; the script then reads anyway,
-- and only a necessary write ends with the error.

local HAS_CHANNEL = 4
local LONGEST_RECORD = 4200000 -- by the options; more comes from a clock that
                               -- jumped
local version, process, flight = ARGV[1], ARGV[2], ARGV[3]
local now = clock()

local function write(data_version, how, ...)
    local record = MAGIC .. 'L' .. ARGV[4] .. data_version .. process
        .. struct.pack('>I8I8', now, now + tonumber(ARGV[5])) .. flight
    local done = redis.pcall('SET', K, record, 'PX', ARGV[6], ...)
    if not done or done.err then return done end
    return {'LEAD', data_version, how}
end

local function is_no_memory(reply)
    return reply.err and string.find(reply.err, 'OOM', 1, true)
end

-- A process is gone when nobody is subscribed to its channel. If we may not
-- ask, only the end of the lease tells.
local function is_gone(held)
    if bit.band(held.flags, HAS_CHANNEL) == 0 then return false end
    local reply = redis.pcall('PUBSUB', 'NUMSUB',
        'snowshed:process:' .. held.process)
    return reply[2] == 0
end

local function is_over(held)
    local pttl = redis.call('PTTL', K)
    if pttl < 0 or pttl > LONGEST_RECORD then return true end
    if now >= held.until_ms then return true end
    local age = now - held.written -- below 0: the clock was set back
    return (age < 0 or age >= tonumber(ARGV[7])) and is_gone(held)
end

-- How long another's lease still lasts. If the clock was set back after it was
-- written or renewed, it lasts for its whole length from now, without the
-- length of the step added: a live holder renews it before it ends, and one
-- that is stopped, or has no channel, is replaced then. The length is the
-- record's own, because the asker may have another in its options.
local function time_left(held)
    if now >= held.written then return held.until_ms - now end
    local length = held.until_ms - held.written
    set_times(now, length)
    return length
end

local won = write(version, 'new', 'NX')
if won and not is_no_memory(won) then return won end
local no_memory = won

local kind, bytes = read()
if kind == 'L' and #bytes == HEADER then
    local held = lease(bytes)
    if held.process == process and held.flight == flight then
        if no_memory then return {'LEAD', held.version, 'mine'} end
        return write(held.version, 'mine') -- with the whole lease before it
    end
    if is_over(held) then return write(held.version, 'takeover') end
    return {'WAIT', time_left(held)}
end
if ARGV[8] ~= '' and bytes and string.sub(bytes, 1, #ARGV[8]) == ARGV[8] then
    return write(version, 'corrupt')
end
if kind == 'V' or kind == 'N' then return {'HIT', bytes} end
if kind == 'F' then
    -- one from the future would answer for as long as the clock was set back
    if now < lease(bytes).written then return write(version, 'new') end
    return {'FAILED', bytes}
end
return write(version, 'foreign')
