-- Find out which rights the user lacks. Nothing is read or written.
-- ARGV  1 'cache', 'lock' (LEASE and QUORUM) or 'text' (the other algorithms);
--         'tags' (its log) or 'fleet' (its budget of loads): what these need
--         beyond a cache; 'replicas' (a wait for them): beyond a lock
--       2 the first of its keys
--       3 the channel of a process, or '' if none is subscribed to
--       4 the prefix of the names of its other keys
-- Returns what is missing, as ACL SETUSER takes it; nothing before Redis 7, where a script
--         cannot find out.
-- The key is not in KEYS, because without the right to it the server would refuse
-- the whole call.

local missing = {}
if not redis.acl_check_cmd then return missing end

local function need(right, ...)
    -- acl_check_cmd raises an error for a command that the server does not know
    local is_known, is_granted = pcall(redis.acl_check_cmd, ...)
    if not (is_known and is_granted) then missing[#missing + 1] = right end
end

local suffixes = {
    cache = {'', ':refresh'},
    lock = {'', ':f', ':s', ':q', ':o', ':w'},
    text = {''},
    tags = {''},
    fleet = {''},
    replicas = {}
}
local commands = {
    cache = {'get', 'set', 'setrange', 'del', 'unlink', 'pttl', 'pexpire'},
    lock = {'get', 'set', 'del', 'pttl', 'pexpire', 'incrby', 'zadd', 'zrange',
        'zrem'},
    text = {'get', 'set', 'del', 'pttl', 'pexpire', 'setnx', 'getset'},
    tags = {'zadd', 'zrange', 'zrem', 'zrangebyscore', 'unlink'},
    fleet = {'zadd', 'zrem', 'zrangebyscore', 'zremrangebyscore', 'zcount',
        'unlink', 'pexpire'},
    replicas = {}
}
-- as many arguments as the server needs to accept the command and find the key
local arguments = {set = 1, setrange = 2, pexpire = 1, incrby = 1, zadd = 2,
    zrange = 2, zrem = 1, zrangebyscore = 2, zremrangebyscore = 2,
    zcount = 2, setnx = 1, getset = 1}

local is_option = ARGV[1] == 'tags' or ARGV[1] == 'fleet'
    or ARGV[1] == 'replicas'
if not is_option then
    need('+role', 'role')
    need('+ping', 'ping')
    need('+time', 'time')
    need('+info', 'info', 'server')
    need('+script|load', 'script', 'load', 'x')
    need('+evalsha', 'evalsha', 'x', '0')
    need('+eval', 'eval', 'x', '0')
end
if not is_option and ARGV[3] ~= '' then
    need('+client|id', 'client', 'id')
    need('+client|tracking', 'client', 'tracking', 'on')
    need('+pubsub|numsub', 'pubsub', 'numsub', ARGV[3])
    need('+subscribe &snowshed:process:*', 'subscribe', ARGV[3])
    need('+subscribe &__redis__:invalidate', 'subscribe',
        '__redis__:invalidate')
    need('+unsubscribe', 'unsubscribe', ARGV[3])
end

if ARGV[1] == 'replicas' then need('+wait', 'wait', '1', '1') end

-- EVALSHA itself is granted, since this script runs. So if EVALSHA with a key
-- is refused, the key is the reason, and no command on it would be granted.
local before = #missing
for _, suffix in ipairs(suffixes[ARGV[1]]) do
    local key = suffix == '' and ARGV[2] or ARGV[4] .. suffix
    need('~' .. key, 'evalsha', 'x', '1', key)
end
if #missing > before then return missing end
for _, command in ipairs(commands[ARGV[1]]) do
    local rest = {}
    for i = 1, arguments[command] or 0 do rest[i] = '1' end
    need('+' .. command, command, ARGV[2], unpack(rest))
end
return missing
