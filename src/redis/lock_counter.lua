-- Prepended to lock_acquire.lua and lock_advance.lua, behind lock.lua: the counter
-- of fencing numbers. Its number is at least the server's clock. So numbers grow even
-- if Redis has lost the counter. Redis keeps the counter for a day after the clock has
-- reached its number, so that the clock may be set back by a day.

-- Set the counter, whose clock is us(). Returns it as text (formatting a number
-- costs as much as a command); nil if NX forbids it.
local function set_counter(number, clock, ...)
    local text, life = whole(number), '86400000'
    if number > clock then
        life = whole(life + (number - clock) / 1000)
    end
    return redis.call('SET', COUNTER, text, 'PX', life, ...) and text
end

-- Raise the counter to at least number, and with step '1' by at least one.
-- Writes only, so that the counter is not tracked. INCRBY makes a counter where
-- there is none, and it stays there if SET is refused: so the right to SET must
-- be known. Returns two values: the counter as text, or the error if it is not a
-- number; and its former value plus the step.
local function advance(step, number, clock)
    local was = redis.pcall('INCRBY', COUNTER, step)
    if type(was) == 'table' then return was end
    return set_counter(math.max(was, number), clock), was
end
