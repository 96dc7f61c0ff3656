-- Registers a topic unless it is registered, and ends a deletion that is in progress.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic; 3 the entry; 4 the token that creates it, or ''; 5 the most
--         topics that the token may have created, or ''
-- returns the entry that holds now; '' if the token may create no more topics
-- uses: registry
redis.call('HDEL', DEPARTURES, ARGV[2])
local entry = redis.call('HGET', TOPICS, ARGV[2])
if entry then return entry end
local token = ARGV[4]
if ARGV[5] ~= '' then
  local created = redis.call('ZLEXCOUNT', CREATED, '[' .. token .. ' ', '(' .. token .. '!')
  if created >= tonumber(ARGV[5]) then return '' end
end
redis.call('HSET', TOPICS, ARGV[2], ARGV[3])
if token ~= '' then redis.call('ZADD', CREATED, 0, token .. ' ' .. ARGV[2]) end
changed()
return ARGV[3]
