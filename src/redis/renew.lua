-- Restart our lease from now; the record's time to live stays as it is. The
-- lease's beginning moves with its end, so that the record shows its length, and
-- whether the clock was set back since. From now on it names the epoch of this
-- call. A value whose time is over meanwhile is kept for its refresh.
-- KEYS  1 the key of the lease: the entry's, or that of its refresh
--       2 of a refresh: the entry's
-- ARGV  1 data version   2 process id   3 flight number   4 lease, ms
--       5 epoch of the process's session; 0: it has no channel
-- Returns 1 if the lease was ours, 0 if not

local held = ours(ARGV[1], ARGV[2], ARGV[3])
if not held then return 0 end
renew(K, held, tonumber(ARGV[5]), tonumber(ARGV[4]))
if KEYS[2] and redis.call('PTTL', KEYS[2]) <= LEEWAY + 1 then
    local kind, bytes = read(KEYS[2])
    if kind == 'V' or kind == 'N' then
        keep_ended(KEYS[2], lease(bytes), redis.call('PTTL', K))
    end
end
return 1
