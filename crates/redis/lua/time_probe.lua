-- Purpose: returns the time and the outage grace in force, and stores that the server was reached. If no caller reached it
--          for too long, or this caller failed to, it records an outage grace first.
-- KEYS:    1 probed, 2 hosts, 3 outage grace
-- ARGV:    1 the longest silence in ms that needs no outage grace; 2 how long an outage grace lasts, in ms;
--          3 when the caller first failed to reach the server since it last did, in ms, 0 if it knew no time then,
--          nothing if it did not fail
-- Reply:   the server's time in seconds and the microseconds of it; since and until of the outage grace in force, or nothing
--          and nothing
-- Race:    two callers reconnect at once: the second finds the server reached, and the outage grace of the first.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local host = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
local last = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), tonumber(host[2] or '0'))
local from, to
-- On a server that was never reached no device can be alive.
if last > 0 and (ARGV[3] ~= '' or now - last > tonumber(ARGV[1])) then
  local failed = tonumber(ARGV[3]) or 0
  local since = math.min(last, now, failed > 0 and failed or now)
  from, to = merge_outage_grace(KEYS[3], since, now + tonumber(ARGV[2]), now)
else
  from, to = string.match(redis.call('GET', KEYS[3]) or '', '^(%d+) (%d+)$')
end
-- Last: a caller that sees this also sees the outage grace.
redis.call('SET', KEYS[1], string.format('%.0f', now))
return {time[1], time[2], from or '', to or ''}
