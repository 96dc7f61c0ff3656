-- Begins the deletion of a topic. leave.lua continues it in each of the topic's lanes, and
-- unregister.lua ends it.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic; 3 a unique token
-- returns the topic's entry, or '' if there is none
-- uses: registry
redis.call('HSET', DEPARTURES, ARGV[2], ARGV[3])
return redis.call('HGET', TOPICS, ARGV[2]) or ''
