-- Store what was loaded, unless its data version has ended. A refresh replaces
-- only the value for which it was elected: a key that has since been invalidated,
-- or has another value, stays as it is.
-- KEYS  1 the key   2 the key of its refresh lease
-- ARGV  1 data version   2 head   3 tail   4 payload
--       5 how long it is fresh, ms
--       6 ttl, ms; 0 removes what is at the key instead
--       7 for a refresh, the nonce of the value that it replaces; else ''
-- Returns {'STORED'}             the first finisher of this data version
--         {'SUPERSEDED', entry}  the key already has a value, or a different one
--         {'INVALIDATED'}        the data version is gone; nothing is written

local R, nonce = KEYS[2], ARGV[7]
local kind, bytes = read(K)
local is_value = kind == 'V' or kind == 'N'

local function has_version(lease_kind, lease_bytes)
    return lease_kind == 'L' and lease(lease_bytes).version == ARGV[1]
end

local function refusal()
    if nonce == '' then
        if is_value then return {'SUPERSEDED', bytes} end
        if not has_version(kind, bytes) then return {'INVALIDATED'} end
        return nil
    end
    if not has_version(read(R)) then return {'INVALIDATED'} end
    if not is_value then return {'INVALIDATED'} end
    if lease(bytes).version ~= nonce then return {'SUPERSEDED', bytes} end
    return nil
end

local refused = refusal()
local ttl = tonumber(ARGV[6])
if not refused then
    if ttl == 0 then
        redis.call('DEL', K)
    else
        store(ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ttl)
    end
end
-- also if the publish is refused: otherwise nobody could refresh the new value
-- for a whole lease
if nonce ~= '' and has_version(read(R)) then redis.call('UNLINK', R) end
return refused or {'STORED'}
