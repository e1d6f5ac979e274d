-- Purpose: keeps a session's devices within the bound after a new one: removes expired ones first, then those with
--          the oldest beats.
-- KEYS:    1 user
-- ARGV:    1 how many may stay; 2 devices that expired by this instant are dead, in ms; 3... the new devices
-- Reply:   how many were removed
-- Race:    two new devices at once: each call trims after its device was written, so the last sees both.

local most = tonumber(ARGV[1])
if redis.call('HLEN', KEYS[1]) <= most then return 0 end
local came = {}
for i = 3, #ARGV do came[ARGV[i]] = true end
local devices, kept = {}, {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do kept[all[i]] = all[i + 1] end
for field in pairs(kept) do
  local sort, id = string.match(field, '^([ad]):(.*)$')
  -- Each device once: by its `d` if it has both fields.
  if id and (sort == 'd' or not kept['d:' .. id]) then
    local beat, life = newest_beat(kept['d:' .. id], kept['a:' .. id])
    beat, life = beat or '0', life or '-'
    local dead = life == '-' or tonumber(beat) + tonumber(life) <= tonumber(ARGV[2])
    -- The order of removal: the new devices are removed last.
    local rank = came[id] and 2 or dead and 0 or 1
    devices[#devices + 1] = {id = id, rank = rank, beat = tonumber(beat)}
  end
end
table.sort(devices, function(one, other)
  if one.rank ~= other.rank then return one.rank < other.rank end
  if one.beat ~= other.beat then return one.beat < other.beat end
  return one.id < other.id
end)
local over = math.max(#devices - most, 0)
for i = 1, over do redis.call('HDEL', KEYS[1], 'd:' .. devices[i].id, 'a:' .. devices[i].id) end
return over
