-- Sets a topic's policy.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic; 3 policy
-- returns whether the topic exists
-- uses: registry
if redis.call('HEXISTS', TOPICS, ARGV[2]) == 0 then return 0 end
redis.call('HSET', POLICIES, ARGV[2], ARGV[3])
changed()
return 1
