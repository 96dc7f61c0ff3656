-- Ends a topic's deletion: takes it out of the registry, with its policy and its pauses. All of its lanes have been closed since depart.lua.
--
-- KEYS    the registry: 1 hash topic -> entry; 2 policies: hash topic -> JSON; 3 pauses: hash topic -> see pause.lua;
--         4 departures: hash topic -> token; 5 the revision
-- ARGV    1 now (not used); 2 topic; 3 the token that depart.lua was given
-- returns whether there is no such topic now. A topic that was registered again since stays: lanes may be open to its tasks.
local is_there = redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1
if is_there and redis.call('HGET', KEYS[4], ARGV[2]) ~= ARGV[3] then return 0 end
for i = 1, 4 do redis.call('HDEL', KEYS[i], ARGV[2]) end
if is_there then changed() end
return 1
