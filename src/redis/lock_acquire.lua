-- Take a lock, or learn when to look again.
-- Returns {'HELD', number}     the token has the lock, now or already; a third
--                              element: it was taken from a dead holder
--         {'TAKEN', ms}        another has it, or it is another's turn; in this
--                              many ms that may change without a push
--         {'WRONGTYPE'}        the value is not a string, so it is not a lock
-- Any string that is not a record of ours is the lock of a foreign client, for
-- which we wait and which we never change.
-- One SET NX first: if the key is empty this saves a read, and a script that
-- reads nothing is not tracked, so only waiters get pushes. When Redis is out
-- of memory, SET is refused even if another has the lock; then the script reads,
-- and a waiter waits for the release or the end of the lease.

local function take(...)
    local record = MAGIC .. token .. process .. run
    local clock = us() -- an error here must not leave the lock taken
    local done = redis.pcall('SET', K, record, 'PX', lease, ...)
    if not done then return nil end
    if done.err then return done end
    local number = advance('1', clock, clock)
    if type(number) == 'string' then return {'HELD', number} end
    redis.call('DEL', K) -- else the caller would hold it without knowing
    return number
end

-- A free lock is taken here, because the rest creates a dozen functions, which
-- costs as much as the commands.
local me = wait ~= '' and token .. process .. wait -- in the queue
local no_memory = false
if not me then
    local held = take('NX')
    if held and not (held.err and string.find(held.err, 'OOM', 1, true)) then
        return held
    end
    no_memory = held ~= nil
end

grace = tonumber(grace)
-- How long a lock is kept for the first in the queue before that loses its
-- place, and how much longer than its announced wait a member may stay in the
-- queue.
local OFFER_MS, SLACK_MS = 250, 1000
local OFFER_LIFE_MS = 10 * OFFER_MS
-- The longest pause between two looks of a waiter.
local LOOK_MS = 100

-- How long mark has held the value "what", in ms. If it holds something else,
-- or nothing, it is set to "what" and begins again; so does a mark that has
-- more than its life left, because the clock was set back.
local function age_of(mark, what, life)
    local age = life - redis.call('PTTL', mark)
    if redis.call('GET', mark) == what and age >= 0 then return age end
    redis.call('DEL', mark) -- a write, after which SET works without memory
    redis.call('SET', mark, what, 'PX', life)
    return 0
end

-- Whether nobody is subscribed to the channel of a process. False without the
-- right to ask.
local function has_no_subscriber(name)
    local subscribers = redis.pcall('PUBSUB', 'NUMSUB',
        'snowshed:process:' .. name)
    return subscribers[2] == 0
end

-- Whether nobody is subscribed to the holder's channel although somebody was,
-- in this run of the server: after a restart nobody is until the holder
-- returns.
local function is_absent(held)
    if not has_no_subscriber(held.process) then return false end
    local info = redis.pcall('INFO', 'server')
    return type(info) == 'string'
        and string.find(info, 'run_id:' .. held.run, 1, true) ~= nil
end

-- A holder or waiter is gone when it was absent at two looks, grace apart, and
-- at all between: a live one comes back sooner. Returns how long to wait for the
-- second look at what is absent, 0 if it is gone, nil if nothing is absent.
local function until_gone(what)
    if not what then
        redis.call('DEL', SUSPICION)
        return nil
    end
    return math.max(grace - age_of(SUSPICION, what, 2 * grace + LOOK_MS), 0)
end

local function parse_member(bytes)
    local has_process = #bytes > 32 -- a member of version 0.1 names none
    return {
        token = string.sub(bytes, 1, 16),
        process = has_process and string.sub(bytes, 17, 32) or NO_PROCESS,
        wait = tonumber(string.sub(bytes, has_process and 33 or 17)) or 0,
    }
end

-- Whose turn it is: the first in the queue that has not waited for longer than
-- it announced.
local function first()
    while true do
        local head = redis.call('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')
        if not head[1] then return nil end
        local wait = parse_member(head[1]).wait
        if us() / 1000 < head[2] / 1000 + wait + SLACK_MS then return head[1] end
        redis.call('ZREM', QUEUE, head[1])
    end
end

-- The members of the queue whose process is absent, and the names of these
-- processes. One process may wait with many threads.
local function absent_members()
    local members, names, is_known = {}, {}, {}
    for _, bytes in ipairs(redis.call('ZRANGE', QUEUE, 0, -1)) do
        local process = parse_member(bytes).process
        if is_known[process] == nil then
            is_known[process] = process ~= NO_PROCESS
                and has_no_subscriber(process)
            if is_known[process] then names[#names + 1] = process end
        end
        if is_known[process] then members[#members + 1] = bytes end
    end
    return members, table.concat(names)
end

-- All absent waiters are suspected and removed together, so that many dead ones
-- cost one grace. A waiter that was alive after all loses its place, and joins
-- the queue again when it next asks. Returns how long to wait for the second
-- look, 0 if head was removed, nil if it is present or that cannot be known.
local function until_removed(head)
    local process = parse_member(head).process
    local members, names
    if grace > 0 and process ~= NO_PROCESS and has_no_subscriber(process) then
        members, names = absent_members()
    end
    local left = until_gone(names)
    if left == 0 then
        for _, bytes in ipairs(members) do redis.call('ZREM', QUEUE, bytes) end
    end
    return left
end

local function enlist()
    -- a write that changes nothing, after which ZADD works without memory
    redis.call('ZREM', QUEUE, '')
    redis.call('ZADD', QUEUE, 'NX', whole(us()), me)
    local life = wait + SLACK_MS
    if redis.call('PTTL', QUEUE) < life then
        redis.call('PEXPIRE', QUEUE, whole(life))
    end
end

-- Tell the releaser that another handle waits. All waiters ask again after each
-- release, so the mark of the last one serves for all.
local function mark_waiter()
    redis.call('SET', MARK, handle, 'PX', 2 * LOOK_MS)
end

-- For a free lock: how long it is still another's turn, nil if it is ours.
local function until_our_turn()
    local head = first()
    while head and parse_member(head).token ~= token do
        local left = OFFER_MS - age_of(OFFER, head, OFFER_LIFE_MS)
        local gone = until_removed(head)
        if left > 0 and gone ~= 0 then
            return gone and math.min(gone, left) or left
        end
        redis.call('ZREM', QUEUE, head)
        head = first()
    end
end

local function take_in_turn(...)
    if not me then return take(...) end
    local left = until_our_turn()
    if left then
        redis.call('DEL', K) -- a dead holder's: from now on the lock is free
        enlist()
        return {'TAKEN', left}
    end
    local held = take(...)
    -- if SET was refused, our place is kept for the next try
    if held.err then return held end
    local reply = leave()
    if type(reply) == 'number' then return held end
    redis.call('DEL', K) -- else the caller would hold it without knowing
    return reply
end

-- A foreign holder has no process that could be found absent, and may keep the
-- lock forever. While it has the lock nobody can take an offer.
local function wait_for_foreign()
    if me then
        redis.call('DEL', OFFER)
        enlist()
    elseif not no_memory then
        mark_waiter()
    end
    local left = redis.call('PTTL', K)
    return {'TAKEN', left < 0 and LOOK_MS or left}
end

local held = read()
if held == 'wrong type' then return {'WRONGTYPE'} end
if not held then return take_in_turn() end
if not held.token then return wait_for_foreign() end
if held.token == token then
    redis.call('PEXPIRE', K, lease) -- a write; now all others pass
    return take()
end
local left = redis.call('PTTL', K)
if left < 0 then -- somebody has removed its time to live
    left = tonumber(lease)
    redis.call('PEXPIRE', K, lease)
end
if no_memory then return {'TAKEN', left} end -- a mark is impossible, too
local gone = until_gone(grace > 0 and is_absent(held) and held.token)
if gone == 0 then
    local taken = take_in_turn()
    if taken[1] == 'HELD' then taken[3] = 'takeover' end
    return taken
end
if me then enlist() else mark_waiter() end
return {'TAKEN', gone and math.min(gone, left) or left}
