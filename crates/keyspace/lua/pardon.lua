-- Purpose: records that the store was away, so that every node pardons whoever was alive when that began.
-- KEYS:    1 amnesty
-- ARGV:    1 when the store was last known to answer, in ms; 2 until when the pardon lasts, in ms; 3 now in ms
-- Reply:   since and until of the pardon now in force
-- Race:    two nodes come back at once: their pardons overlap, and whoever is second extends the first.

return {merge(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))}
