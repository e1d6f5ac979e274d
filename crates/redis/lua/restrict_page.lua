-- Purpose: sets or clears the restriction of many numeric accounts of one page, and logs that the page changed.
-- KEYS:    1 numbers (the page), 2 operand, 3 pages, 4 log, 5 policy (the channel)
-- ARGV:    1 the page; 2 the accounts, one bit each, without zeros at the end; 3 1 to restrict, 0 to lift; 4 now in us;
--          5 how many changes the log keeps; 6 the command that publishes; 7 the change as it is logged
-- Reply:   1 changed, 0 nothing changed
-- Race:    another account of the page changes at the same time: neither change undoes the other.

local before = redis.call('BITCOUNT', KEYS[1])
redis.call('SET', KEYS[2], ARGV[2])
if ARGV[3] == '1' then
  redis.call('BITOP', 'OR', KEYS[1], KEYS[1], KEYS[2])
else
  -- Intersect the operand with the page, then clear those bits. BITOP reads a missing bit as zero.
  redis.call('BITOP', 'AND', KEYS[2], KEYS[1], KEYS[2])
  redis.call('BITOP', 'XOR', KEYS[1], KEYS[1], KEYS[2])
end
redis.call('DEL', KEYS[2])
local after = redis.call('BITCOUNT', KEYS[1])
if after == before then return 0 end
if after > 0 then
  redis.call('SADD', KEYS[3], ARGV[1])
else
  redis.call('DEL', KEYS[1])
  redis.call('SREM', KEYS[3], ARGV[1])
end
append_log(KEYS[4], KEYS[5], {now = ARGV[4], most = ARGV[5], publish = ARGV[6], entry = ARGV[7]})
return 1
