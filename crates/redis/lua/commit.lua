-- Purpose: changes one session by compare-and-swap, all or nothing: record, choice, devices, deadline, publication.
-- KEYS:    1 user, 2 due, 3 archive, 4 alive, 5 evicted, 6 t (the channel)
-- ARGV:    1 commits and 2 touches that the decision was made on, 0 for none; 3 now in ms; 4 now in us;
--          5 a stamp that no touch has; 6 the user;
--          7 what the session waits for (settle, evict or nothing) and 8 until when, in ms;
--          9 prune devices that expired by this instant, in ms, 0 for none;
--          10 `state version` to publish, or nothing; 11 its `since seen`; 12 its note as JSON, or nothing;
--          13 its version; 14 the command that publishes; 15 the payload;
--          16 when the choice was made, or nothing; 17 its `stance until`, or nothing for auto; 18 its note, or nothing
-- Reply:   1 applied, 0 stale
-- Race:    a heartbeat or another commit between the load and this one: it changed the revision, so this changes nothing.
--          A user without a session has no revision to compare; `evicted` tells whether a session came and went meanwhile.

local revision = redis.call('HMGET', KEYS[1], 'c', 't', 'f', 'r', 'n')
if (revision[1] or '0') ~= ARGV[1] or (revision[2] or '0') ~= ARGV[2] then return 0 end

local publishes, chooses = ARGV[10] ~= '', ARGV[16] ~= ''
if publishes and not revision[1] and not revision[2] then
  local evicted = redis.call('GET', KEYS[5])
  if evicted and tonumber(ARGV[13]) <= tonumber(evicted) then return 0 end
end

-- A revision never repeats: `c` rises and is at least the time in us, and a session without a beat gets a stamp too.
local fields = {'c', string.format('%.0f', math.max(tonumber(revision[1] or '0') + 1, tonumber(ARGV[4])))}
local function set(field, value)
  fields[#fields + 1] = field
  fields[#fields + 1] = value
end
if not revision[2] then set('t', ARGV[5]) end
-- Field f holds the deadline, so every commit writes it. Only a commit moves a deadline later, so the session is due no
-- later than f says.
local record, rest = string.match(revision[3] or 'off 0', '^(%S+ %S+) ?(.*)$')
local stance = string.match(rest, '(%S+ %S+)$') or ''
if publishes then record = ARGV[10] end
if chooses then stance = ARGV[17] end
-- Readers need no more than this until the deadline. A user who looks offline has none, so that an invisible user is read in
-- the same way as one who is gone.
local rest, note = revision[4], revision[5] or ''
if publishes then rest, note = ARGV[11], ARGV[12] end
local readable = '1'
if rest and not string.find(record, '^off ') then
  readable = record .. ' ' .. rest .. (note == '' and '' or ' ' .. note)
end
if ARGV[7] == 'settle' then record = record .. ' ' .. ARGV[8] end
set('f', stance == '' and record or record .. ' ' .. stance)
if publishes then set('r', ARGV[11]) end
if publishes and ARGV[12] ~= '' then set('n', ARGV[12]) end
if chooses then set('h', ARGV[16]) end
if chooses and ARGV[18] ~= '' then set('w', ARGV[18]) end
-- First, because a server without memory refuses this write: then nothing has changed.
redis.call('HSET', KEYS[1], unpack(fields))
if publishes and ARGV[12] == '' then redis.call('HDEL', KEYS[1], 'n') end
if chooses and ARGV[18] == '' then redis.call('HDEL', KEYS[1], 'w') end

local prune_by = tonumber(ARGV[9])
if prune_by > 0 then
  local all, kept = redis.call('HGETALL', KEYS[1]), {}
  for i = 1, #all, 2 do kept[all[i]] = all[i + 1] end
  for field in pairs(kept) do
    local device = string.match(field, '^[ad]:(.*)$')
    if device then
      local beat, life = newest_beat(kept['d:' .. device], kept['a:' .. device])
      if not beat or life == '-' or tonumber(beat) + tonumber(life) <= prune_by then
        redis.call('HDEL', KEYS[1], 'd:' .. device, 'a:' .. device)
      end
    end
  end
end

if ARGV[7] == 'settle' then
  redis.call('ZADD', KEYS[2], ARGV[8], ARGV[6])
  redis.call('ZREM', KEYS[3], ARGV[6])
  -- No further than 2^41 ms, seventy years: the server refuses expiries that overflow.
  local left = math.min(math.max(tonumber(ARGV[8]) - tonumber(ARGV[3]), 1), 2199023255552)
  redis.call('SET', KEYS[4], readable, 'PX', string.format('%.0f', left))
else
  if ARGV[7] == 'evict' then
    redis.call('ZADD', KEYS[3], ARGV[8], ARGV[6])
  else
    redis.call('ZREM', KEYS[3], ARGV[6])
    -- A session with no record, no choice and no device is deleted.
    local idle = true
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
      if field == 'r' or field == 'h' or string.find(field, '^[ad]:') then idle = false end
    end
    if idle then redis.call('DEL', KEYS[1]) end
  end
  redis.call('ZREM', KEYS[2], ARGV[6])
  redis.call('DEL', KEYS[4])
end

if publishes then redis.call(ARGV[14], KEYS[6], ARGV[15]) end
return 1
