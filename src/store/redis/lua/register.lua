-- Registers a topic unless it is there, and ends its departure if it is being deleted.
--
-- KEYS    the registry: 1 hash topic -> entry; 2 policies: hash topic -> JSON; 3 pauses: hash topic -> see pause.lua;
--         4 departures: hash topic -> token; 5 the revision
-- ARGV    1 now (not used); 2 topic; 3 the entry
-- returns the entry that holds now
redis.call('HDEL', KEYS[4], ARGV[2])
local entry = redis.call('HGET', KEYS[1], ARGV[2])
if entry then return entry end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
changed()
return ARGV[3]
