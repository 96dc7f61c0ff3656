-- Ends the deletion of a topic: removes it from the registry, with its policy and its pauses. All
-- of its lanes have been closed since depart.lua.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic; 3 the token that depart.lua was given
-- returns whether the topic is gone now. A topic that was registered again since stays, because
--         lanes may be open to its tasks.
-- uses: registry
local entry = redis.call('HGET', TOPICS, ARGV[2])
if entry and redis.call('HGET', DEPARTURES, ARGV[2]) ~= ARGV[3] then return 0 end
for _, key in ipairs({ TOPICS, POLICIES, PAUSES, DEPARTURES, SCHEDULED }) do
  redis.call('HDEL', key, ARGV[2])
end
if entry then
  local is_read, read = pcall(cjson.decode, entry)
  if is_read and type(read) == 'table' and read.created_by then
    redis.call('ZREM', CREATED, read.created_by .. ' ' .. ARGV[2])
  end
  changed()
end
return 1
