-- A look into many lanes at once.
--
-- KEYS  the set of destinations of each lane. A lane's other keys are named after it and have its
--       hash tag; in a cluster, a call is given one lane.
local tag_at = string.find(KEYS[1], '-{', 1, true)

local prefix = string.sub(KEYS[1], 1, tag_at - 1 - #'DELAY_TOPIC_DESTINATIONS')

-- The score of the member of this rank; nil if there is none.
local function score_at(key, rank)
  return tonumber(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2])
end

-- The earliest of two moments, where there may be none.
local function earlier(a, b)
  return a and b and math.min(a, b) or a or b
end
