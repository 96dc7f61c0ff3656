-- Ends the deletion of a topic: removes it from the registry, with its policy and its pauses. All
-- of its lanes have been closed since depart.lua.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic; 3 the token that depart.lua was given
-- returns whether the topic is gone now. A topic that was registered again since stays, because
--         lanes may be open to its tasks.
-- uses: registry
local is_there = redis.call('HEXISTS', TOPICS, ARGV[2]) == 1
if is_there and redis.call('HGET', DEPARTURES, ARGV[2]) ~= ARGV[3] then return 0 end
for _, key in ipairs({ TOPICS, POLICIES, PAUSES, DEPARTURES, SCHEDULED }) do
  redis.call('HDEL', key, ARGV[2])
end
if is_there then changed() end
return 1
