-- Store what was loaded, of one key or of several, each unless its data version has
-- ended. A refresh replaces only the value for which it was elected: a key that has
-- since been invalidated, or has another value, stays as it is.
-- KEYS  of each: 1 the key   2 the key of its refresh lease
-- ARGV  of each: 1 data version   2 head   3 tail   4 payload
--       5 how long it is fresh, ms
--       6 how long Redis keeps it, ms; 0 removes what is at the key in the end
--       7 for a refresh, the nonce of the value that it replaces; else ''
--       8 for a refresh that found the row unmodified, 'keep', which makes the
--         present value fresh again, or 'keep and get', which returns it as well
--         (2 to 4 and 9 are then unused); else ''
--       9 the tags behind the payload, or ''
-- Returns for each
--         {'STORED'}             the first finisher of this data version
--         {'KEPT', entry}        the same, with the value that was kept
--         {'SUPERSEDED', entry}  the key already has a fresh value, or a different one
--         {'INVALIDATED'}        the data version is gone; nothing is written. A
--                                value that is there instead is no longer fresh, so
--                                it is no answer either

local ARGUMENTS = 9 -- of each

local function publish(key, refresh_key, bytes, version, head, tail, payload, fresh,
                       ttl, nonce, keep, tags)
    local kind = kind_of(bytes)
    local refresh_kind, refresh_bytes
    if nonce ~= '' then refresh_kind, refresh_bytes = read(refresh_key) end
    local is_value = kind == 'V' or kind == 'N'

    local function has_version(lease_kind, lease_bytes)
        return lease_kind == 'L' and lease(lease_bytes).version == version
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
        fresh, ttl = tonumber(fresh), tonumber(ttl)
        done = {'STORED'}
        if keep ~= '' then
            set_times(key, clock(), fresh, ttl > 0 and ttl or nil)
            if keep == 'keep and get' then
                done = {'KEPT', redis.call('GET', key)}
            end
        elseif ttl > 0 then
            store(key, head, tail, payload .. tags, fresh, ttl)
        end
        if ttl == 0 then redis.call('DEL', key) end
    end
    -- also if the publish is refused: otherwise nobody could refresh the new value
    -- for a whole lease
    if has_version(refresh_kind, refresh_bytes) then
        redis.call('UNLINK', refresh_key)
    end
    return done
end

-- What several keys hold. Not all users may call MGET. To it, a key of another type
-- is like none, and so it is to publish.
local function read_all(keys)
    local found = #keys > 1 and redis.pcall('MGET', unpack(keys)) or {}
    if #found == #keys then return found end
    for i = 1, #keys do found[i] = get(keys[i]) end
    return found
end

local keys, done = {}, {}
for i = 1, #KEYS, 2 do keys[#keys + 1] = KEYS[i] end
local found = read_all(keys)
for i = 1, #keys do
    local before = (i - 1) * ARGUMENTS
    done[i] = publish(keys[i], KEYS[2 * i], found[i],
        unpack(ARGV, before + 1, before + ARGUMENTS))
end
return done
