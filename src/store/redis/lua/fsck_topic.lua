-- Writes a topic's entry, unless somebody else has changed it since it was read.
--
-- KEYS    the registry: 1 hash topic -> entry; 2 policies: hash topic -> JSON; 3 pauses: hash topic -> see pause.lua;
--         4 departures: hash topic -> token; 5 the revision
-- ARGV    1 now (not used); 2 topic; 3 the entry as it was read; 4 the entry as it shall be
-- returns whether it was written. A lane's worker learns of it when its instance reads the registry again.
if redis.call('HGET', KEYS[1], ARGV[2]) ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
changed()
return 1
