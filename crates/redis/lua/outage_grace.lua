-- Purpose: records an outage, so that on every host the devices that were alive when it began keep counting as alive.
-- KEYS:    1 outage grace
-- ARGV:    1 when the store was last known to answer, in ms; 2 until when the outage grace lasts, in ms; 3 now in ms
-- Reply:   since and until of the outage grace now in force
-- Race:    two hosts reconnect at once: their outage graces overlap, and the second extends the first.

return {merge_outage_grace(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))}
