-- Store a row that the caller has committed; ends leases as invalidate does.
-- KEYS  1 the key   2 the key of its refresh lease
-- ARGV  1 head   2 tail   3 payload   4 how long it is fresh, ms   5 how long Redis
--         keeps it, ms
--       6 the row version (8 bytes, as in the tail), or ''
--       7 the tags behind the payload, or ''
--       8 when it is too late, ms: by then the caller can have given up, and a later
--         write, or a load, be what this one would replace
-- Returns the server's clock, ms, if it is too late: nothing is done
--         1; or, if the row was refused (out of memory), the error, after the
--         old value was removed, because it is older than the row.
--         With a row version: 2 if the key has a value of a higher version, which
--         stays; 3 if it has "no such row", or a value without a version: nobody
--         knows which of the two is newer, so it is removed and not replaced
-- UNLINK comes last: after a write, Redis lets a script exceed its memory.

-- By numbers: Lua compares strings as the server's locale does.
local function is_lower(a, b)
    local a_high, a_low = struct.unpack('>I4I4', a)
    local b_high, b_low = struct.unpack('>I4I4', b)
    return a_high < b_high or (a_high == b_high and a_low < b_low)
end

if clock() >= tonumber(ARGV[8]) then return clock() end
local kind, bytes
if ARGV[6] ~= '' then kind, bytes = read(K) end
if kind == 'V' or kind == 'N' then
    local there = version_of_row(bytes)
    if there and is_lower(ARGV[6], there) then return 2 end
    if not there then
        redis.call('UNLINK', K, KEYS[2])
        return 3
    end
end
local stored = redis.pcall('SET', K, entry(ARGV[1], ARGV[2],
    ARGV[3] .. ARGV[7], tonumber(ARGV[4])), 'PX', ARGV[5])
redis.call('UNLINK', KEYS[2])
if stored.err then
    redis.call('UNLINK', K)
    return stored
end
return 1
