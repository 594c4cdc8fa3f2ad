-- Make the fencing numbers of later holders exceed a number.
-- Returns the counter's former value

local number, clock = tonumber(least), us()
if set_counter(number, clock, 'NX') then return 0 end
local now, was = advance('0', number, clock)
return was or now -- a text: an error
