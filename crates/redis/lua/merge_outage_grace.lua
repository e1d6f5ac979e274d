-- Merges an outage grace into the one in force: if the two overlap, the earlier start and the later end count. The key
-- expires when the outage grace ends.
local function merge_outage_grace(key, since, till, now)
  local known = redis.call('GET', key)
  if known then
    local began, ends = string.match(known, '^(%d+) (%d+)$')
    if tonumber(ends) >= since then
      since, till = math.min(since, tonumber(began)), math.max(till, tonumber(ends))
    end
  end
  local from, to = string.format('%.0f', since), string.format('%.0f', till)
  redis.call('SET', key, from .. ' ' .. to, 'PX', string.format('%.0f', math.max(till - now, 1)))
  return from, to
end
