-- The schedules of a lane: which tasks wait for which destination until when.
-- uses: keys

-- Corrects the earliest due moment of a destination after a task left its schedule. A destination
-- without waiting tasks is forgotten, because callers may name any number of hosts. Returns its
-- earliest due moment, true for pulled tasks, or false if it is forgotten.
local function correct(destination)
  if destination == '@pull' then return true end
  local head = redis.call('ZRANGE', SCHEDULES .. destination, 0, 0, 'WITHSCORES')
  if head[2] then
    redis.call('ZADD', DESTINATIONS, head[2], destination)
    return head[2]
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

-- Takes a waiting or leased task off its schedule or lease.
local function lift(id, destination)
  if redis.call('ZREM', LEASED, id) == 0 then
    unschedule(id, destination)
  end
end
