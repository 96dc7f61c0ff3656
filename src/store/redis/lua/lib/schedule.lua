-- The schedules of a lane: what waits for which destination until when.
-- uses: keys

-- Corrects what the lane knows of a destination after something left its schedule. One for which
-- nothing waits is forgotten: callers may name any number of hosts. Answers whether it is known.
local function correct(destination)
  if destination == '@pull' then return true end
  local head = redis.call('ZRANGE', SCHEDULES .. destination, 0, 0, 'WITHSCORES')
  if head[2] then
    redis.call('ZADD', DESTINATIONS, head[2], destination)
    return true
  end
  redis.call('ZREM', DESTINATIONS, destination)
  redis.call('HDEL', OFFSETS, destination)
  return false
end

local function schedule(id, destination, due)
  redis.call('ZADD', SCHEDULES .. destination, due, id)
  if destination ~= '@pull' then
    redis.call('ZADD', DESTINATIONS, 'LT', due, destination)
  end
end

local function unschedule(id, destination)
  redis.call('ZREM', SCHEDULES .. destination, id)
  correct(destination)
end

-- Takes a live task off its lease or its schedule.
local function lift(id, destination)
  if redis.call('ZREM', LEASED, id) == 0 then
    unschedule(id, destination)
  end
end
