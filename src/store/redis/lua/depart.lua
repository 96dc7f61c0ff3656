-- Begins a topic's deletion. It goes on with leave.lua in each of the topic's lanes, and ends with
-- unregister.lua.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic; 3 a token that nobody has used
-- returns the topic's entry, or '' if there is none
-- uses: registry
redis.call('HSET', DEPARTURES, ARGV[2], ARGV[3])
return redis.call('HGET', TOPICS, ARGV[2]) or ''
