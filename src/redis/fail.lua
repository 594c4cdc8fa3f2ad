-- Replace our lease with a failure marker, so that its waiters hear of the
-- failure at once. A loader whose lease was taken over leaves the record alone.
-- KEYS  1 the key of the lease: the entry's, or that of its refresh
-- ARGV  1 data version   2 process id   3 flight number
--       4 head   5 tail   6 reason
--       7 how long the marker answers everybody, ms
--       8 how long it is there, ms, for those who waited for this load and look
--         late; 0 removes the lease record and leaves no marker
-- Returns 1 if the lease was ours, 0 if not

if not ours(ARGV[1], ARGV[2], ARGV[3]) then return 0 end
local ttl = tonumber(ARGV[8])
if ttl == 0 then
    redis.call('DEL', K)
else
    store(K, ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), ttl)
end
return 1
