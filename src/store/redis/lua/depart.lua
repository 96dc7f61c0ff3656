-- Begins a topic's deletion. It goes on with leave.lua in each of the topic's lanes, and ends with unregister.lua.
--
-- KEYS    the registry: 1 hash topic -> entry; 2 policies: hash topic -> JSON; 3 pauses: hash topic -> see pause.lua;
--         4 departures: hash topic -> token; 5 the revision
-- ARGV    1 now (not used); 2 topic; 3 a token that nobody has used
-- returns the topic's entry, or '' if there is none
redis.call('HSET', KEYS[4], ARGV[2], ARGV[3])
return redis.call('HGET', KEYS[1], ARGV[2]) or ''
