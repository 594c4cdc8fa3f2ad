-- Prepended to each script, before lock.lua (to lock_*.lua) or entry.lua.

-- Redis 6 refuses a write after TIME without this; newer versions always do it.
if redis.replicate_commands then redis.replicate_commands() end

local K = KEYS[1]

-- The server's clock, in microseconds.
local function us()
    local t = redis.call('TIME')
    return t[1] * 1000000 + t[2]
end

local function whole(number) return string.format('%.0f', number) end

-- The string at key; nil if there is nothing; false if it is of another type.
local function get(key)
    local bytes = redis.pcall('GET', key)
    if type(bytes) ~= 'table' then return bytes or nil end
    if string.find(bytes.err, 'WRONGTYPE', 1, true) then return false end
    error(bytes.err)
end

