-- Pauses a topic, or leaves it paused.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    2 topic
-- returns since when, or '' if there is no such topic. A text that cannot be read is replaced.
-- uses: now, registry
if redis.call('HEXISTS', TOPICS, ARGV[2]) == 0 then return '' end
local since, rest = string.match(redis.call('HGET', PAUSES, ARGV[2]) or '-', '^([%d-]+)(.*)$')
if tonumber(since or nil) then return tonumber(since) end
redis.call('HSET', PAUSES, ARGV[2], string.format('%.0f', now) .. (since == '-' and rest or ''))
changed()
return now
