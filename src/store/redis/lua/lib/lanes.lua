-- Reads of many lanes at once.
--
-- KEYS  the set of destinations of each lane. The lane's other keys are derived from its name, and
--       have its hash tag; in a cluster, a call gets one lane.
local tag_at = string.find(KEYS[1], '-{', 1, true)

local prefix = string.sub(KEYS[1], 1, tag_at - 1 - #'DELAY_TOPIC_DESTINATIONS')

-- The score of the member of this rank; nil if there is none.
local function score_at(key, rank)
  return tonumber(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2])
end

-- The earlier of two moments, each of which may be nil.
local function earlier(a, b)
  return a and b and math.min(a, b) or a or b
end
