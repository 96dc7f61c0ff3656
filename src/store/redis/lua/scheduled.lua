-- Notes that a topic may have recurring schedules, before its first one is stored.
--
-- KEYS    the registry, see lib/registry.lua
-- ARGV    1 now (not used); 2 topic
-- returns 1 if that was not noted, else 0
-- uses: registry
local is_new = redis.call('HSETNX', SCHEDULED, ARGV[2], 1)
if is_new == 1 then changed() end
return is_new
