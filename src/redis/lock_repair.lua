-- Take a plain lock without a time to live, whose holder died between SETNX and
-- EXPIRE. This is atomic, so only one of the clients that see it gets it.
-- KEYS  1 the lock
-- ARGV  1 the old value   2 the new value   3 lease, ms
-- Returns 1 if it is ours now, 0 if it has a time to live, or is another's

if redis.call('PTTL', KEYS[1]) ~= -1 then return 0 end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
