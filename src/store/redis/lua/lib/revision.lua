-- The registry's revision: a number that grows with each change. This stands before the scripts that change the registry.
--
-- KEYS[5]  the revision
--
-- Instances read the number each second and the registry only if it is another one. It is taken from the clock, so that a number that a
-- failover has lost is not given again to another state.
local function changed()
  local time = redis.call('TIME')
  local last = tonumber(redis.call('GET', KEYS[5]) or 0) or 0
  redis.call('SET', KEYS[5], string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2])))
end
