-- Raises the counter of ids to an id that is in use. A counter that cannot be read, or that leaves
-- no room for ids, is set anew.
--
-- KEYS    1 the last id drawn; 2 the run of the server that drew it
-- ARGV    1 now (not used); 2 the highest id known to be in use, or 0
-- returns nothing. After a change the next draw skips ahead, as in a new run. Instances may still
--         hold ids that were drawn before; an add refuses an id that belongs to another task.
-- uses: constants
local last, highest = tonumber(redis.call('GET', KEYS[1]) or 0), tonumber(ARGV[2])
if not last or last < highest or last > MAX_ID or last % 1 ~= 0 then
  redis.call('SET', KEYS[1], string.format('%.0f', highest))
  redis.call('DEL', KEYS[2])
end
