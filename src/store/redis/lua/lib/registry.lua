-- The topic registry, and its revision: a number that grows with each change. Instances poll the
-- number every second, and read the registry only if it has changed.
--
-- KEYS
--   1 topics     hash topic -> entry
--   2 policies   hash topic -> JSON
--   3 pauses     hash topic -> "<since ms, or - > <from ms> <to ms> <what becomes of the tasks>
--                ...", newest last
--   4 departures hash topic -> token of its deletion
--   5 revision   string, a number
--   6 scheduled  hash topic -> 1, for topics that may have recurring schedules
--   7 created    zset "<token> <topic>" -> 0, for topics that a token created. No token's name has
--                a space.
local TOPICS = KEYS[1]
local POLICIES = KEYS[2]
local PAUSES = KEYS[3]
local DEPARTURES = KEYS[4]
local REVISION = KEYS[5]
local SCHEDULED = KEYS[6]
local CREATED = KEYS[7]

-- Notes a change of the registry. The number is taken from the clock, so a number that a failover
-- lost is not given to another state.
local function changed()
  local time = redis.call('TIME')
  local last = tonumber(redis.call('GET', REVISION) or 0) or 0
  local revision = math.max(last + 1, time[1] * 1000000 + time[2])
  redis.call('SET', REVISION, string.format('%.0f', revision))
end
