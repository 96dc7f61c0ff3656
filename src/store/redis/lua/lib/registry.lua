-- The topic registry, and its revision: a number that grows with each change. Instances read the
-- number each second, and the registry only if it is another one.
--
-- KEYS
--   1 topics     hash topic -> entry
--   2 policies   hash topic -> JSON
--   3 pauses     hash topic -> "<since ms, or - > <from ms> <to ms> <what becomes of what fell due
--                then> ...", newest last
--   4 departures hash topic -> token of its deletion
--   5 revision   string, a number
local TOPICS = KEYS[1]
local POLICIES = KEYS[2]
local PAUSES = KEYS[3]
local DEPARTURES = KEYS[4]
local REVISION = KEYS[5]

-- The registry has changed. The number is taken from the clock, so that one that a failover has
-- lost is not given again to another state.
local function changed()
  local time = redis.call('TIME')
  local last = tonumber(redis.call('GET', REVISION) or 0) or 0
  local revision = math.max(last + 1, time[1] * 1000000 + time[2])
  redis.call('SET', REVISION, string.format('%.0f', revision))
end
