-- Let a lock last for a whole lease from now, if it is still the token's.
-- KEYS  1 the lock
-- ARGV  1 token   2 process   3 run id   4 lease, ms; 0: until it ends anyhow
-- Returns 1 if it was the token's, 0 if not

if not is_held_by(KEYS[1], ARGV[1]) then return 0 end
local record = MAGIC .. ARGV[1] .. ARGV[2] .. ARGV[3]
if ARGV[4] == '0' then
    redis.call('SET', KEYS[1], record, 'KEEPTTL')
else
    redis.call('SET', KEYS[1], record, 'PX', ARGV[4])
end
return 1
