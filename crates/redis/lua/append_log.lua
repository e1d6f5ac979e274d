-- Appends a change to the log and publishes its number. Each entry names the one before it, so that a reader notices
-- missing entries. The number is the time in us, or one more than the last number if the time went backwards. It stays
-- below 2^53 for two centuries, so that it is exact as a score.
local function append_log(log, channel, change)
  local last = redis.call('ZRANGE', log, -1, -1, 'WITHSCORES')
  local before = tonumber(last[2] or '0')
  local number = string.format('%.0f', math.max(before + 1, tonumber(change.now)))
  redis.call('ZADD', log, number, string.format('%.0f', before) .. ' ' .. number .. ' ' .. change.entry)
  redis.call('ZREMRANGEBYRANK', log, 0, -1 - tonumber(change.most))
  redis.call(change.publish, channel, number)
end
