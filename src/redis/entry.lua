-- Prepended to the scripts about entries: reads and writes them. The layout is in
-- src/entry/entry.h; offsets count from 1 here.

local MAGIC = '\245shd\2'
local HEADER = 64
local TIMES_OFFSET = 40 -- SETRANGE counts from 0
local UNTIL_OFFSET = 48
local EPOCH_OFFSET = 60

-- The server's clock at the first call, in milliseconds.
local now_ms
local function clock()
    now_ms = now_ms or math.floor(us() / 1000)
    return now_ms
end

-- What the bytes of a key are: 'L', 'V', 'N', 'F', or 'foreign' if they are not ours.
local function kind_of(bytes)
    if not bytes or #bytes < HEADER or string.sub(bytes, 1, 5) ~= MAGIC then
        return 'foreign'
    end
    return string.sub(bytes, 6, 6)
end

-- What a key holds: its kind and its bytes; nil if there is nothing.
local function read(key)
    local bytes = get(key)
    if bytes == nil then return nil end
    return kind_of(bytes), bytes or nil
end

-- Parse a lease record; of another entry, its nonce (version) and times.
local function lease(bytes)
    return {
        version = string.sub(bytes, 9, 24),
        process = string.sub(bytes, 25, 40),
        written = struct.unpack('>I8', string.sub(bytes, 41, 48)),
        until_ms = struct.unpack('>I8', string.sub(bytes, 49, 56)),
        flight = string.sub(bytes, 57, 60),
        epoch = struct.unpack('>I4', string.sub(bytes, 61, 64)),
    }
end

-- The lease at K, if it is ours: of a data version, a process and a flight,
-- whatever its epoch. Else nil.
local function ours(version, process, flight)
    local kind, bytes = read(K)
    if kind ~= 'L' then return nil end
    local held = lease(bytes)
    local is_ours = held.version == version and held.process == process
        and held.flight == flight
    return is_ours and held or nil
end

-- What distinguishes a value from any other, and from itself before it was
-- renewed: its nonce and the time of writing.
local function identity(bytes)
    return string.sub(bytes, 9, 24) .. string.sub(bytes, 41, 48)
end

-- The row version of a value, 8 bytes; nil if it has none.
local HAS_ROW_VERSION = 2
local function version_of_row(bytes)
    if bit.band(string.byte(bytes, 8), HAS_ROW_VERSION) == 0 then return nil end
    return string.sub(bytes, 57, 64)
end

-- Restart the entry at a key: it lasts for length ms from now, and Redis keeps it
-- for life ms (nil: as long as before). PEXPIRE comes first, even if the time to
-- live stays as it is, because it needs no memory, and after a write Redis lets a
-- script exceed its memory; so the times, whose size stays the same, can be
-- rewritten too.
local function set_times(key, now, length, life)
    local left = life or redis.call('PTTL', key)
    if left > 0 then
        redis.call('PEXPIRE', key, whole(left))
    end
    redis.call('SETRANGE', key, TIMES_OFFSET,
        struct.pack('>I8I8', now, now + length))
end

-- Restart our lease from now, as by set_times. From now on it names the epoch of this
-- call, unless the call comes late, from an epoch that is over. 0: our process has no
-- channel.
local function renew(key, held, epoch, length, life)
    if epoch > 0 then epoch = math.max(epoch, held.epoch) end
    set_times(key, clock(), length, life)
    redis.call('SETRANGE', key, EPOCH_OFFSET, struct.pack('>I4', epoch))
end

-- Make an entry with a payload. head and tail are the client's parts of the
-- header; the times between them come from the server. The entry is fresh for
-- "fresh" ms.
local function entry(head, tail, payload, fresh)
    local now = clock()
    return head .. struct.pack('>I8I8', now, now + fresh) .. tail .. payload
end

-- When a value may be given out is decided by its times alone. Redis keeps one that
-- can be refreshed for LEEWAY ms longer, so that at its end a refresh under way is
-- seen, and is not taken for that of a value that was invalidated. A value that is
-- still being refreshed then has ended: its end is 0, and Redis keeps it as long as
-- the lease of the refresh, for nobody but its publish. LEEWAY is a few times as long
-- as a timer, or a caller who looks at the key, is late on a busy machine. The client
-- adds it (freshness.c).
local LEEWAY = 200

-- For how long a value may still be given out by anybody, ms. One ms less than PTTL
-- says: its clock is that of the script's begin, TIME's goes on.
local function value_left(key, value)
    if value.until_ms == 0 then return 0 end
    return math.max(0, redis.call('PTTL', key) - LEEWAY - 1)
end

local function keep_ended(key, value, life)
    if value.until_ms == 0 then return end -- a write would wake its waiters
    redis.call('PEXPIRE', key, whole(life)) -- first: see set_times
    redis.call('SETRANGE', key, UNTIL_OFFSET, struct.pack('>I8', 0))
end

local function store(key, head, tail, payload, fresh, ttl)
    redis.call('SET', key, entry(head, tail, payload, fresh), 'PX', whole(ttl))
end
