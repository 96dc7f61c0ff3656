-- Pauses a topic, or leaves it paused.
--
-- KEYS    the registry: 1 hash topic -> entry; 2 policies: hash topic -> JSON; 3 pauses: hash topic -> "<since ms, or - > <from ms>
--         <to ms> <what becomes of what fell due then> ...", the newest last; 4 departures: hash topic -> token; 5 the revision
-- ARGV    2 topic
-- returns since when, or '' if there is no such topic. A text that cannot be read is written anew.
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return '' end
local since, rest = string.match(redis.call('HGET', KEYS[3], ARGV[2]) or '-', '^([%d-]+)(.*)$')
if tonumber(since or nil) then return tonumber(since) end
redis.call('HSET', KEYS[3], ARGV[2], string.format('%.0f', now) .. (since == '-' and rest or ''))
changed()
return now
