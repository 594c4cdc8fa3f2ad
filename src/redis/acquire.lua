-- Take the lease of a key, or learn what the key holds. A value that is no longer
-- fresh, or that the caller found due, is refreshed under a lease in a separate
-- key, so that it can still be read meanwhile.
-- KEYS  1 the key   2 the key of its refresh lease
-- ARGV  1 data version for a new record (16 bytes)
--       2 process id (16 hexadecimal digits)   3 flight number (4 bytes)
--       4 epoch of the process's session; 0: it has no channel
--       5 lease, ms   6 life of the record, ms   7 grace, ms
--       8 the beginning of an entry that the caller found corrupt, or ''
--       9 nonce and time of writing (8 bytes) of a fresh value that is to be
--         refreshed, or ''
--       10 'waited' if the caller has waited for a load that was under way, or ''
-- Returns {'LEAD', data version, how}, how being 'new', 'mine' (an earlier
--             reply was lost), 'foreign', 'corrupt' (replaced) or 'takeover'
--         {'HIT', entry}       the key holds a row, or "no such row"
--         {'FAILED', entry}    the key holds a failure marker
--         {'WAIT', ms, age}    another holds the lease, for at most this long,
--             and took it so many ms ago
--         If the lease or the marker belongs to a refresh, the nonce of the
--         value to be replaced follows; with LEAD also how long that may still
--         be given out, ms, and its row version (8 bytes), if it has one.
-- A value that nobody may be given any longer is refreshed by nobody: while its
-- refresh is under way that is waited for, and then it counts as gone.
-- A key that has nothing is rather claimed by SET NX with a lease of this form.

local LONGEST_RECORD = 4200000 -- by the options; more comes from a clock that
                               -- jumped
local version, process, flight = ARGV[1], ARGV[2], ARGV[3]
local epoch, grace = tonumber(ARGV[4]), tonumber(ARGV[7])
local now = clock()
local key = K -- of the lease
local nonce, left, row_version -- of a refresh: the value's

local function write(data_version, how)
    local record = MAGIC .. 'L\0\0' .. data_version .. process
        .. struct.pack('>I8I8', now, now + tonumber(ARGV[5])) .. flight
        .. struct.pack('>I4', epoch)
    local done = redis.pcall('SET', key, record, 'PX', ARGV[6])
    if done.err then return done end
    return {'LEAD', data_version, how, nonce, left, row_version}
end

-- A holder is gone when nobody is subscribed to the channel of the epoch in which
-- it took or renewed its lease: its process has died, or has lost Redis. Without a
-- channel, or the right to ask, only the end of the lease shows that.
local function is_gone(held)
    if held.epoch == 0 then return false end
    local reply = redis.pcall('PUBSUB', 'NUMSUB',
        'snowshed:process:' .. held.process .. '.' .. whole(held.epoch))
    return reply[2] == 0
end

-- The lease of a holder that is gone ends in a grace, unless it is renewed before:
-- a process that has lost Redis is back within a few ms, and renews the leases of its
-- loads in its next epoch. All others end, whether their flights have given up, or
-- never heard that they were granted.
local function shorten(held)
    set_times(key, now, grace)
    held.written, held.until_ms = now, now + grace
end

-- A holder that has just taken or renewed its lease is alive: nobody asks, because
-- most who find another's lease come right behind it.
local function is_alive(held)
    local age = now - held.written
    return age >= 0 and age < grace / 2 and now < held.until_ms
end

local function is_over(held, pttl)
    if pttl < 0 or pttl > LONGEST_RECORD then return true end
    if now >= held.until_ms then return true end
    if held.until_ms - now <= grace or not is_gone(held) then return false end
    if grace > 0 then shorten(held) end
    return grace == 0
end

-- How long ago the lease was taken. A renewal rewrites the record's times, but not
-- its time to live, so that tells the age, if the holder has the asker's options.
local function age(held, pttl)
    return math.max(0, now - held.written, tonumber(ARGV[6]) - pttl)
end

-- How long another's lease still lasts. If the clock was set back since it was
-- written or renewed, it lasts for its whole length from now, and not for the
-- step as well: a live holder renews it before it ends, and one that is
-- stopped, or has no channel, is replaced then. The length is taken from the
-- record, because the asker's options may differ.
local function time_left(held)
    if now >= held.written then return held.until_ms - now end
    local length = held.until_ms - held.written
    set_times(key, now, length)
    return length
end

local function is_corrupt(bytes)
    return ARGV[8] ~= '' and bytes and string.sub(bytes, 1, #ARGV[8]) == ARGV[8]
end

local kind, bytes = read(K)
local value
if (kind == 'V' or kind == 'N') and not is_corrupt(bytes) then
    value = lease(bytes)
    if now < value.until_ms and identity(bytes) ~= ARGV[9] then
        return {'HIT', bytes}
    end
    key, nonce, left = KEYS[2], value.version, value_left(K, value)
    row_version = version_of_row(bytes)
    kind, bytes = read(key)
end
if kind == 'L' and #bytes == HEADER then
    local held = lease(bytes)
    if held.process == process and held.flight == flight then
        renew(key, held, epoch, tonumber(ARGV[5]), tonumber(ARGV[6]))
        return {'LEAD', held.version, 'mine', nonce, left, row_version}
    end
    if left ~= 0 and is_alive(held) then
        return {'WAIT', held.until_ms - now, now - held.written, nonce}
    end
    local pttl = redis.call('PTTL', key)
    if not is_over(held, pttl) then
        if left == 0 then keep_ended(K, value, pttl) end
        return {'WAIT', time_left(held), age(held, pttl), nonce}
    end
    if left ~= 0 then return write(held.version, 'takeover') end
end
-- Whether a marker answers the caller: it does for its time, and after that if the
-- caller has waited for the load that failed. One from the future, after the clock
-- was set back, would last too long.
local function is_answer(marker)
    if now < marker.written then return false end
    return now < marker.until_ms or ARGV[10] ~= ''
end

local how = 'foreign'
if is_corrupt(bytes) then
    how = 'corrupt'
elseif kind == 'F' and is_answer(lease(bytes)) then
    return {'FAILED', bytes, nonce}
elseif kind == nil or kind == 'F' then
    how = 'new'
elseif left == 0 and kind == 'L' then
    how = 'takeover' -- but of the load, not of the data version
end
if left == 0 then key, nonce = K, nil end
return write(version, how)
