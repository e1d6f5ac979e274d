-- Purpose: reads the records of users whose `alive` key has none, all in one command.
-- KEYS:    for each user their hash and the due queue of their shard
-- ARGV:    the users
-- Reply:   for each user the fields f, r and n and the deadline, four values; those that are missing are nil
-- Race:    none, because it changes nothing

local found = {}
for i, user in ipairs(ARGV) do
  local kept = redis.call('HMGET', KEYS[2 * i - 1], 'f', 'r', 'n')
  local at = 4 * (i - 1)
  found[at + 1], found[at + 2], found[at + 3] = kept[1], kept[2], kept[3]
  found[at + 4] = redis.call('ZSCORE', KEYS[2 * i], user)
end
return found
