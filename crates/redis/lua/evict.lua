-- Purpose: deletes a session that did not change, and stores its version so that no older one is ever published.
-- KEYS:    1 user, 2 due, 3 archive, 4 alive, 5 evicted
-- ARGV:    1 commits and 2 touches that the decision was made on, 0 for none; 3 now in us; 4 the user
-- Reply:   1 deleted, or no session; 0 stale
-- Race:    a heartbeat between the load and this: it changed the revision, so nothing is deleted.

local kept = redis.call('HMGET', KEYS[1], 'c', 't', 'f')
if (kept[1] or '0') ~= ARGV[1] or (kept[2] or '0') ~= ARGV[2] then return 0 end
if kept[3] then
  -- No further than now: a version from the future would make every later version of a new session look old.
  local version = math.min(tonumber(string.match(kept[3], '^%S+ (%d+)')), tonumber(ARGV[3]))
  if version > tonumber(redis.call('GET', KEYS[5]) or '0') then
    redis.call('SET', KEYS[5], string.format('%.0f', version))
  end
end
redis.call('DEL', KEYS[1], KEYS[4])
redis.call('ZREM', KEYS[2], ARGV[4])
redis.call('ZREM', KEYS[3], ARGV[4])
return 1
