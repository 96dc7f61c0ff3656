-- Raises the counter of ids to one that is in use. One that cannot be read, or that no id may
-- follow, begins anew.
--
-- KEYS    1 the last id drawn
-- ARGV    1 now (not used); 2 the highest id known to be in use, or 0
-- returns nothing. A block that an instance has in hand was drawn before, and is refused where an id is another task's.
local last, highest = tonumber(redis.call('GET', KEYS[1]) or 0), tonumber(ARGV[2])
if not last or last < highest or last >= 9007199254740992 or last % 1 ~= 0 then
  redis.call('SET', KEYS[1], string.format('%.0f', highest))
end
