-- Sets a topic's policy.
--
-- KEYS    1 the registry: hash topic -> entry; 2 policies: hash topic -> JSON; 3 pauses: hash topic -> "<since ms, or - > <from ms> <to ms>
--         <what becomes of what fell due then> ...", the newest last
-- ARGV    1 now (not used); 2 topic; 3 policy
-- returns whether there is such a topic
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 1
