-- Appends a change to the log and publishes its number. Each entry names the one before it, so that a reader notices
-- missing entries. Its number is the time unless the time went backwards; below
-- 2^53 for the next two centuries, so that a score is exact.
local function record(log, channel, change)
  local last = redis.call('ZRANGE', log, -1, -1, 'WITHSCORES')
  local before = tonumber(last[2] or '0')
  local number = string.format('%.0f', math.max(before + 1, tonumber(change.now)))
  redis.call('ZADD', log, number, string.format('%.0f', before) .. ' ' .. number .. ' ' .. change.entry)
  redis.call('ZREMRANGEBYRANK', log, 0, -1 - tonumber(change.most))
  redis.call(change.publish, channel, number)
end
