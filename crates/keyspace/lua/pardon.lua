-- Purpose: records that the store was away, so that every node pardons whoever was alive when that began.
-- KEYS:    1 amnesty
-- ARGV:    1 when the store was last known to answer, in ms; 2 until when the pardon lasts, in ms; 3 now in ms
-- Reply:   since and until of the pardon now in force
-- Race:    two nodes come back at once: of two pardons that overlap, the earlier beginning and the later end count.

local since, till = tonumber(ARGV[1]), tonumber(ARGV[2])
local known = redis.call('GET', KEYS[1])
if known then
  local began, ends = string.match(known, '^(%d+) (%d+)$')
  if tonumber(ends) >= since then
    since, till = math.min(since, tonumber(began)), math.max(till, tonumber(ends))
  end
end
local from, to = string.format('%.0f', since), string.format('%.0f', till)
redis.call('SET', KEYS[1], from .. ' ' .. to, 'PX', string.format('%.0f', math.max(till - tonumber(ARGV[3]), 1)))
return {from, to}
