-- Purpose: stores or removes a typing signal, or checks again one that came too fast, and publishes it, rate-limited.
--          The rule is that of `rollcall_core::typing`.
-- KEYS:    1 typing, 2 c (the channel)
-- ARGV:    1 the user; 2 now in ms; 3 how long the signal lasts in ms, 0 to remove it, - to check again;
--          4 the least time between two publications, in ms; 5 the most users per conversation;
--          6 the command that publishes; 7 the payload up to its last value, the instant
-- Reply:   after how many ms to check again, 0 for never
-- Race:    the same user types on two hosts: the second call finds what the first published, and when.

local now, every = tonumber(ARGV[2]), tonumber(ARGV[4])
local function read(value)
  local till, published_at, published_till = string.match(value, '^(%d+) (%d+) (%d+)$')
  return tonumber(till), tonumber(published_at), tonumber(published_till)
end
local function forget_at(till, published_at, published_till)
  return math.max(till, published_till, published_at > 0 and published_at + every or 0)
end
local function running(till)
  return till > now and till or 0
end
local function ms(number)
  return string.format('%.0f', number)
end

local kept = redis.call('HGET', KEYS[1], ARGV[1])
if not kept then
  -- Without a stored signal there is nothing to remove or to check.
  if ARGV[3] == '-' or ARGV[3] == '0' then return 0 end
  if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[5]) then
    local all, gone = redis.call('HGETALL', KEYS[1]), 0
    for i = 1, #all, 2 do
      if forget_at(read(all[i + 1])) <= now then gone = gone + redis.call('HDEL', KEYS[1], all[i]) end
    end
    if gone == 0 then return 0 end
  end
end

local till, published_at, published_till = read(kept or '0 0 0')
if ARGV[3] ~= '-' then
  local lasts = tonumber(ARGV[3])
  till = lasts > 0 and now + lasts or 0
end
local publish, wait = false, 0
if running(till) ~= running(published_till) then
  local since = math.max(now - published_at, 0)
  if published_at > 0 and since < every then
    wait = every - since
  else
    publish, published_at, published_till = true, now, running(till)
  end
end

redis.call('HSET', KEYS[1], ARGV[1], ms(till) .. ' ' .. ms(published_at) .. ' ' .. ms(published_till))
-- The key expires with its last user. At most 2^41 ms: the server refuses expiries that overflow.
local left = math.min(math.max(forget_at(till, published_at, published_till) - now, 1), 2199023255552)
if redis.call('PTTL', KEYS[1]) < left then redis.call('PEXPIRE', KEYS[1], ms(left)) end
if publish then redis.call(ARGV[6], KEYS[2], ARGV[7] .. (published_till > 0 and ms(published_till) or 'null') .. '}') end
return wait
