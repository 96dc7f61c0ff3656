-- Takes a topic out of the registry, with its policy and its pauses.
--
-- KEYS    1 the registry: hash topic -> entry; 2 policies: hash topic -> JSON; 3 pauses: hash topic -> "<since ms, or - > <from ms> <to ms>
--         <what becomes of what fell due then> ...", the newest last
-- ARGV    1 now (not used); 2 topic
-- returns nothing. Whoever calls this has seen that the topic's lanes are empty, and looks once more afterwards.
for i = 1, 3 do redis.call('HDEL', KEYS[i], ARGV[2]) end
