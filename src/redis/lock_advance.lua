-- Make the fencing numbers of later holders exceed a number.
-- KEYS  1 the counter
-- ARGV  1 the number
-- Returns the counter's former value

local now, was = advance(KEYS[1], '0', tonumber(ARGV[1]), us())
return was or now -- a text: an error
