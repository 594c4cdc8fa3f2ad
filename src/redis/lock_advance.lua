-- Let the fencing numbers of later holders be above a number.
-- KEYS  1 the counter
-- ARGV  1 the number
-- Returns the counter

return advance(KEYS[1], 0, tonumber(ARGV[1]), us())
