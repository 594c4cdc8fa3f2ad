-- Renew a plain lock, or remove it, if what stands there is still ours.
-- KEYS  1 the lock
-- ARGV  1 what we set   2 what is to stand there now; empty: nothing
--       3 lease, ms; 0: no end
-- Returns 1 if it was ours, 0 if not

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
    redis.call('DEL', KEYS[1])
elseif ARGV[3] == '0' then
    redis.call('SET', KEYS[1], ARGV[2])
else
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
