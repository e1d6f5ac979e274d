-- A device's newest beat: the one without activity (d) or with it (a). After a departure (a) holds only a time, which
-- is not a beat. Within a millisecond the one that lasts longer counts.
local function newest_beat(d, a)
  local beat, life, kind = string.match(d or '', '^(%d+) (%S+) (%S+)$')
  local used, lasts, sort = string.match(a or '', '^(%d+) (%S+) (%S+)$')
  if used and beat then
    local later = tonumber(used) - tonumber(beat)
    if later == 0 then later = (tonumber(lasts) or -1) - (tonumber(life) or -1) end
    if later < 0 then used = nil end
  end
  if used then return used, lasts, sort end
  return beat, life, kind
end
