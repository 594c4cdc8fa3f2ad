-- Store what was loaded, if nothing has ended its data version.
-- KEYS  1 the key
-- ARGV  1 data version   2 head   3 tail   4 payload
--       5 ttl, ms; 0 removes the lease record instead
-- Returns {'STORED'}             the first finisher of this data version
--         {'SUPERSEDED', entry}  there is a value already
--         {'INVALIDATED'}        the data version is gone; nothing is written

local kind, bytes = read()
if kind == 'V' or kind == 'N' then return {'SUPERSEDED', bytes} end
if kind ~= 'L' or lease(bytes).version ~= ARGV[1] then
    return {'INVALIDATED'}
end
local ttl = tonumber(ARGV[5])
if ttl == 0 then
    redis.call('DEL', K)
else
    store(ARGV[2], ARGV[3], ARGV[4], ttl)
end
return {'STORED'}
