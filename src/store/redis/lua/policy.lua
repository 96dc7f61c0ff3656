-- Sets a topic's policy.
--
-- KEYS    the registry: 1 hash topic -> entry; 2 policies: hash topic -> JSON; 3 pauses: hash topic -> see pause.lua;
--         4 departures: hash topic -> token; 5 the revision
-- ARGV    1 now (not used); 2 topic; 3 policy
-- returns whether there is such a topic
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
changed()
return 1
