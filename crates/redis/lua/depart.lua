-- Purpose: records a departure: the device stays alive for its grace, or is dead at once.
-- KEYS:    1 user, 2 due, 3 alive
-- ARGV:    1 the user; 2 the device; 3 this touch's stamp; 4 now in ms; 5 the grace in ms, or - for a logout
-- Reply:   what a touch finds (field f), or nothing
-- Race:    the device is pruned, or beats, between the read and the write.

local kept = redis.call('HMGET', KEYS[1], 'f', 't', 'c', 'd:' .. ARGV[2], 'a:' .. ARGV[2])
-- Without a session nothing is stored.
if not kept[2] and not kept[3] then return kept[1] end
local beat, life, kind = newest_beat(kept[4], kept[5])
if not beat then
  redis.call('HSET', KEYS[1], 't', ARGV[3])
  return kept[1]
end
local now, due = tonumber(ARGV[4]), nil
if ARGV[5] == '-' then
  life, due = '-', now
else
  due = now + tonumber(ARGV[5])
  if life ~= '-' then life = string.format('%.0f', math.max(math.min(tonumber(life), due - tonumber(beat)), 0)) end
end
redis.call('HSET', KEYS[1], 't', ARGV[3], 'd:' .. ARGV[2], beat .. ' ' .. life .. ' ' .. kind)
-- Its beat with activity no longer counts as a beat. After a logout the last activity is removed too, so that a device
-- that returns under the same id does not inherit it.
if ARGV[5] == '-' then
  redis.call('HDEL', KEYS[1], 'a:' .. ARGV[2])
elseif kept[5] then
  redis.call('HSET', KEYS[1], 'a:' .. ARGV[2], string.match(kept[5], '^%d+'))
end
redis.call('ZADD', KEYS[2], 'LT', string.format('%.0f', due), ARGV[1])
-- The record holds no longer than until then.
if ARGV[5] == '-' then
  redis.call('DEL', KEYS[3])
else
  redis.call('PEXPIRE', KEYS[3], ARGV[5], 'LT')
end
return kept[1]
