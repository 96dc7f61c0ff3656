-- Forgets a past pause of a topic.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic; 3 the pause: "<from ms> <to ms> <what becomes of the tasks>"
-- returns nothing. A text that cannot be read stays as it is.
-- uses: registry
local text = redis.call('HGET', PAUSES, ARGV[2])
local since, rest = string.match(text or '', '^([%d-]+)(.*)$')
if not since then return end
local kept, length = {}, 0
for pause in string.gmatch(rest, ' %d+ %d+ %a+') do
  length = length + #pause
  if pause ~= ' ' .. ARGV[3] then kept[#kept + 1] = pause end
end
if length ~= #rest then return end
changed()
if since == '-' and #kept == 0 then
  redis.call('HDEL', PAUSES, ARGV[2])
else
  redis.call('HSET', PAUSES, ARGV[2], since .. table.concat(kept))
end
