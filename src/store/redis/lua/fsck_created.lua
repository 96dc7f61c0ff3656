-- Finds topics that count among those of a token that has not created them.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 1 to repair, 0 to check
-- returns the found "<token> <topic>"
-- uses: registry
local found = {}
for _, member in ipairs(redis.call('ZRANGE', CREATED, 0, -1)) do
  local token, topic = string.match(member, '^(%S*) (.*)$')
  local entry = topic and redis.call('HGET', TOPICS, topic)
  local is_read, read = pcall(cjson.decode, entry or '')
  if not is_read or type(read) ~= 'table' or read.created_by ~= token then
    found[#found + 1] = member
    if ARGV[2] == '1' then redis.call('ZREM', CREATED, member) end
  end
end
return found
