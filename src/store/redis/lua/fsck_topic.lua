-- Writes a topic's entry, unless it was changed since it was read.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic; 3 the entry as it was read; 4 the new entry
-- returns whether it was written. Instances learn of it when they read the registry again.
-- uses: registry
if redis.call('HGET', TOPICS, ARGV[2]) ~= ARGV[3] then return 0 end
redis.call('HSET', TOPICS, ARGV[2], ARGV[4])
changed()
return 1
