-- Make the fencing numbers of later holders exceed a number.
-- KEYS  1 the counter
-- ARGV  1 the number
-- Returns the counter's former value

local number, clock = tonumber(ARGV[1]), us()
if set_counter(KEYS[1], number, clock, 'NX') then return 0 end
local now, was = advance(KEYS[1], '0', number, clock)
return was or now -- a text: an error
