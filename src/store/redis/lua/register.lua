-- Registers a topic unless it is registered, and ends a deletion that is in progress.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic; 3 the entry
-- returns the entry that holds now
-- uses: registry
redis.call('HDEL', DEPARTURES, ARGV[2])
local entry = redis.call('HGET', TOPICS, ARGV[2])
if entry then return entry end
redis.call('HSET', TOPICS, ARGV[2], ARGV[3])
changed()
return ARGV[3]
