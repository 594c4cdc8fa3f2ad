-- End a lease that a flight has left behind: it is over, and lost Redis before it
-- could end it, or before it heard that it had one.
-- KEYS  1 the key   2 the key of its refresh lease
-- ARGV  1 process id   2 flight number
-- Returns how many leases there were

local ended = 0
for _, key in ipairs(KEYS) do
    local kind, bytes = read(key)
    if kind == 'L' then
        local held = lease(bytes)
        if held.process == ARGV[1] and held.flight == ARGV[2] then
            ended = ended + redis.call('DEL', key)
        end
    end
end
return ended
