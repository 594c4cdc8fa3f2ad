-- Move the end of our lease; the life of the record stays as it is.
-- KEYS  1 the key
-- ARGV  1 data version   2 process id   3 flight number   4 lease, ms
-- Returns 1 if the lease was ours, 0 if not

local UNTIL_OFFSET = 48 -- SETRANGE counts from 0

local kind, bytes = read()
if kind ~= 'L' then return 0 end
local held = lease(bytes)
if held.version ~= ARGV[1] or held.process ~= ARGV[2]
    or held.flight ~= ARGV[3] then
    return 0
end
redis.call('SETRANGE', K, UNTIL_OFFSET,
    struct.pack('>I8', clock() + tonumber(ARGV[4])))
return 1
