-- Purpose: sets or removes one setting of a user, within the bound of how many there may be, and logs it.
-- KEYS:    1 policy (the bucket), 2 log, 3 policy (the channel)
-- ARGV:    1 the field; 2 its value, or nothing to remove it; 3 the field that counts such fields, or nothing;
--          4 how many there may be; 5 now in us; 6 how many changes the log keeps; 7 the command that publishes;
--          8 the change as it is logged
-- Reply:   1 changed, 0 nothing changed, -1 there are too many
-- Race:    the same user on two hosts: the second counts what the first added, and a change is logged once.

if (redis.call('HGET', KEYS[1], ARGV[1]) or '') == ARGV[2] then return 0 end
local count = ARGV[3] ~= '' and tonumber(redis.call('HGET', KEYS[1], ARGV[3]) or '0')
if ARGV[2] ~= '' then
  if not count then
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  elseif count < tonumber(ARGV[4]) then
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], ARGV[3], string.format('%.0f', count + 1))
  else
    return -1
  end
else
  redis.call('HDEL', KEYS[1], ARGV[1])
  if count and count > 1 then
    redis.call('HSET', KEYS[1], ARGV[3], string.format('%.0f', count - 1))
  elseif count then
    redis.call('HDEL', KEYS[1], ARGV[3])
  end
end
append_log(KEYS[2], KEYS[3], {now = ARGV[5], most = ARGV[6], publish = ARGV[7], entry = ARGV[8]})
return 1
