-- Purpose: drops a session that stands where it stood, and remembers its version so that none older is ever published.
-- KEYS:    1 user, 2 due, 3 cold, 4 alive, 5 gone
-- ARGV:    1 commits and 2 touches that the decision was made on, 0 for none; 3 now in us; 4 the user
-- Reply:   1 dropped, or not there; 0 stale
-- Race:    a heartbeat between the load and this: it moved the revision, so the session stays whole.

local kept = redis.call('HMGET', KEYS[1], 'c', 't', 'f')
if (kept[1] or '0') ~= ARGV[1] or (kept[2] or '0') ~= ARGV[2] then return 0 end
if kept[3] then
  -- No further than now: a version from the future must not make every later one of a newcomer look old.
  local version = math.min(tonumber(string.match(kept[3], '^%S+ (%d+)')), tonumber(ARGV[3]))
  if version > tonumber(redis.call('GET', KEYS[5]) or '0') then
    redis.call('SET', KEYS[5], string.format('%.0f', version))
  end
end
redis.call('DEL', KEYS[1], KEYS[4])
redis.call('ZREM', KEYS[2], ARGV[4])
redis.call('ZREM', KEYS[3], ARGV[4])
return 1
