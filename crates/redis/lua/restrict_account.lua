-- Purpose: sets or clears the restriction of one numeric account, and logs it.
-- KEYS:    1 numbers (the page), 2 pages, 3 log, 4 policy (the channel)
-- ARGV:    1 the page; 2 the account's place in it; 3 1 to restrict, 0 to lift; 4 now in us;
--          5 how many changes the log keeps; 6 the command that publishes; 7 the change as it is logged
-- Reply:   1 changed, 0 nothing changed
-- Race:    another account of the page changes at the same time: the check for an empty page is atomic with the change.

if redis.call('GETBIT', KEYS[1], ARGV[2]) == tonumber(ARGV[3]) then return 0 end
redis.call('SETBIT', KEYS[1], ARGV[2], ARGV[3])
if ARGV[3] == '1' then
  redis.call('SADD', KEYS[2], ARGV[1])
elseif redis.call('BITCOUNT', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('SREM', KEYS[2], ARGV[1])
end
append_log(KEYS[3], KEYS[4], {now = ARGV[4], most = ARGV[5], publish = ARGV[6], entry = ARGV[7]})
return 1
