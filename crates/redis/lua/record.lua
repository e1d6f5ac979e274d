-- Logs a change and tells that there is one. Each entry says which was before it, so that a reader who is somewhere
-- in the log sees whether anything is missing there. Its number is the time unless the time went backwards; below
-- 2^53 for the next two centuries, so that a score is exact.
local function record(log, channel, change)
  local last = redis.call('ZRANGE', log, -1, -1, 'WITHSCORES')
  local before = tonumber(last[2] or '0')
  local number = string.format('%.0f', math.max(before + 1, tonumber(change.now)))
  redis.call('ZADD', log, number, string.format('%.0f', before) .. ' ' .. number .. ' ' .. change.entry)
  redis.call('ZREMRANGEBYRANK', log, 0, -1 - tonumber(change.most))
  redis.call(change.publish, channel, number)
end
