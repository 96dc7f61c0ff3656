-- Ends a topic's pause, and remembers it if tasks that fell due in it are not to be delivered late.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    2 topic; 3 what becomes of these tasks, or '' if they are delivered; 4 how many pauses
--         are remembered
-- returns 1, 0 if it was not paused, or -1 if there is no such topic. Of a text that cannot be
--         read, nothing is remembered.
-- uses: now, registry
if redis.call('HEXISTS', TOPICS, ARGV[2]) == 0 then return -1 end
local text = redis.call('HGET', PAUSES, ARGV[2])
if not text then return 0 end
local since, rest = string.match(text, '^([%d-]+)(.*)$')
if since == '-' then return 0 end
local pauses = {}
for pause in string.gmatch(since and rest or '', ' %d+ %d+ %a+') do pauses[#pauses + 1] = pause end
if tonumber(since or nil) and ARGV[3] ~= '' then
  pauses[#pauses + 1] = string.format(' %s %.0f %s', since, now, ARGV[3])
end
local first = math.max(1, #pauses - tonumber(ARGV[4]) + 1)
if #pauses > 0 then
  redis.call('HSET', PAUSES, ARGV[2], '-' .. table.concat(pauses, '', first))
else
  redis.call('HDEL', PAUSES, ARGV[2])
end
changed()
return 1
