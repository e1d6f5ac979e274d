-- Purpose: leaves or takes away a sign of typing, or looks again at one that came too fast, and tells those who watch,
--          at most once in a while. The rule is that of `rollcall_core::typing`.
-- KEYS:    1 typing, 2 c (the channel)
-- ARGV:    1 the user; 2 now in ms; 3 how long the sign lasts in ms, 0 to take it away, - to look again;
--          4 how often it may be told, in ms; 5 the most people kept per conversation;
--          6 the command that publishes; 7 the payload up to the instant that it ends with
-- Reply:   after how many ms to look again, 0 for never
-- Race:    the same person types on two hosts: whoever comes second finds what the first told, and when.

local now, every = tonumber(ARGV[2]), tonumber(ARGV[4])
local function read(value)
  local till, told_at, told_till = string.match(value, '^(%d+) (%d+) (%d+)$')
  return tonumber(till), tonumber(told_at), tonumber(told_till)
end
local function forget_at(till, told_at, told_till)
  return math.max(till, told_till, told_at > 0 and told_at + every or 0)
end
local function running(till)
  return till > now and till or 0
end
local function ms(number)
  return string.format('%.0f', number)
end

local kept = redis.call('HGET', KEYS[1], ARGV[1])
if not kept then
  -- Whoever is not there has nothing to be taken away or looked at.
  if ARGV[3] == '-' or ARGV[3] == '0' then return 0 end
  if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[5]) then
    local all, gone = redis.call('HGETALL', KEYS[1]), 0
    for i = 1, #all, 2 do
      if forget_at(read(all[i + 1])) <= now then gone = gone + redis.call('HDEL', KEYS[1], all[i]) end
    end
    if gone == 0 then return 0 end
  end
end

local till, told_at, told_till = read(kept or '0 0 0')
if ARGV[3] ~= '-' then
  local lasts = tonumber(ARGV[3])
  till = lasts > 0 and now + lasts or 0
end
local tell, wait = false, 0
if running(till) ~= running(told_till) then
  local since = math.max(now - told_at, 0)
  if told_at > 0 and since < every then
    wait = every - since
  else
    tell, told_at, told_till = true, now, running(till)
  end
end

redis.call('HSET', KEYS[1], ARGV[1], ms(till) .. ' ' .. ms(told_at) .. ' ' .. ms(told_till))
-- The key goes with the last of its people; no further than 2^41 ms: the server refuses expiries that overflow.
local left = math.min(math.max(forget_at(till, told_at, told_till) - now, 1), 2199023255552)
if redis.call('PTTL', KEYS[1]) < left then redis.call('PEXPIRE', KEYS[1], ms(left)) end
if tell then redis.call(ARGV[6], KEYS[2], ARGV[7] .. (told_till > 0 and ms(told_till) or 'null') .. '}') end
return wait
