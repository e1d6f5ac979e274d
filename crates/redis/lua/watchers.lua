-- Purpose: stores how many watchers a worker has of a user, for a while, and returns the sum over all workers.
-- KEYS:    1 watchers
-- ARGV:    1 the worker; 2 how many it has; 3 now in ms; 4 for how long that holds, in ms
-- Reply:   how many there are at all workers
-- Race:    two workers at once: each adds up after its own write, so the second counts both.

local now, sum = tonumber(ARGV[3]), tonumber(ARGV[2])
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if all[i] ~= ARGV[1] then
    local count, till = string.match(all[i + 1], '^(%d+) (%d+)$')
    if tonumber(till) > now then
      sum = sum + tonumber(count)
    else
      redis.call('HDEL', KEYS[1], all[i])
    end
  elseif ARGV[2] == '0' then
    redis.call('HDEL', KEYS[1], all[i])
  end
end
if ARGV[2] ~= '0' then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', now + tonumber(ARGV[4])))
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return sum
