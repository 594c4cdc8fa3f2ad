-- Store what was loaded, unless its data version has ended. A refresh replaces
-- only the value for which it was elected: a key that has since been invalidated,
-- or has another value, stays as it is.
-- KEYS  1 the key   2 the key of its refresh lease
-- ARGV  1 data version   2 head   3 tail   4 payload
--       5 how long it is fresh, ms
--       6 ttl, ms; 0 removes what is at the key instead
--       7 for a refresh, the nonce of the value that it replaces; else ''
--       8 for a refresh that found the row unmodified, 'keep', which makes the
--         present value fresh again, or 'keep and get', which returns it as well
--         (2 to 4 and 9 are then unused); else ''
--       9 the tags behind the payload, or ''
-- Returns {'STORED'}             the first finisher of this data version
--         {'KEPT', entry}        the same, with the value that was kept
--         {'SUPERSEDED', entry}  the key already has a fresh value, or a different one
--         {'INVALIDATED'}        the data version is gone; nothing is written. A
--                                value that is there instead is no longer fresh, so
--                                it is no answer either

local R, nonce, keep = KEYS[2], ARGV[7], ARGV[8]
local kind, bytes = read(K)
local refresh_kind, refresh_bytes
if nonce ~= '' then refresh_kind, refresh_bytes = read(R) end
local is_value = kind == 'V' or kind == 'N'

local function has_version(lease_kind, lease_bytes)
    return lease_kind == 'L' and lease(lease_bytes).version == ARGV[1]
end

local function refusal()
    if is_value and lease(bytes).version ~= nonce then
        local is_fresh = clock() < lease(bytes).until_ms
        return is_fresh and {'SUPERSEDED', bytes} or {'INVALIDATED'}
    end
    if nonce == '' and has_version(kind, bytes) then return nil end
    if is_value and has_version(refresh_kind, refresh_bytes) then return nil end
    return {'INVALIDATED'}
end

local done = refusal()
if not done then
    local fresh, ttl = tonumber(ARGV[5]), tonumber(ARGV[6])
    done = {'STORED'}
    if ttl == 0 then
        redis.call('DEL', K)
    elseif keep == '' then
        store(ARGV[2], ARGV[3], ARGV[4] .. ARGV[9], fresh, ttl + LEEWAY)
    else
        set_times(K, clock(), fresh, ttl + LEEWAY)
        if keep == 'keep and get' then done = {'KEPT', redis.call('GET', K)} end
    end
end
-- also if the publish is refused: otherwise nobody could refresh the new value
-- for a whole lease
if has_version(refresh_kind, refresh_bytes) then redis.call('UNLINK', R) end
return done
