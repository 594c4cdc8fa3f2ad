-- Restart our lease from now; the record's time to live stays as it is. The
-- lease's beginning moves with its end, so that the record shows its length, and
-- whether the clock was set back since.
-- KEYS  1 the key of the lease: the entry's, or that of its refresh
-- ARGV  1 data version   2 process id   3 flight number   4 lease, ms
-- Returns 1 if the lease was ours, 0 if not

local kind, bytes = read(K)
if kind ~= 'L' then return 0 end
local held = lease(bytes)
if held.version ~= ARGV[1] or held.process ~= ARGV[2]
    or held.flight ~= ARGV[3] then
    return 0
end
set_times(K, clock(), tonumber(ARGV[4]))
return 1
