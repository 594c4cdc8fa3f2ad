-- Let the fencing numbers of later holders be above a number.
-- KEYS  1 the counter
-- ARGV  1 the number
-- Returns what the counter was

local now, was = advance(KEYS[1], '0', tonumber(ARGV[1]), us())
return was or now -- an error
