-- Whether a lane is open to tasks of a topic with some number of lanes.
--
-- "#shards" in the offsets says that the lane is open, and to which number. "#opening" is the token
-- for opening it. The deletion of a topic removes both before it removes the topic (leave.lua), so
-- a number that was confirmed before then opens nothing.
--
-- Scripts compare "#shards" with the number first. Building this function costs more than that.

-- Why the lane takes no tasks of a topic with this number of lanes; nil if it takes them. The
-- number is "<n>", or "<n> <token>" after the registry has confirmed it.
--
--   {'closed', token}  ask the registry, then send the call again with the token
--   {'stale', n}       the lane holds tasks of a topic with n lanes
local function refusal_of(bodies, offsets, number)
  local asked, token = string.match(number, '^(%d+) ?(.*)$')
  local shards = redis.call('HGET', offsets, '#shards')
  if shards == asked then return nil end
  if shards and redis.call('HLEN', bodies) > 0 then return { 'stale', tonumber(shards) } end
  local opening = redis.call('HGET', offsets, '#opening')
  if opening and opening == token then
    redis.call('HSET', offsets, '#shards', asked)
    redis.call('HDEL', offsets, '#opening')
    return nil
  end
  if not opening then
    local time = redis.call('TIME')
    opening = time[1] .. '.' .. time[2]
    redis.call('HSET', offsets, '#opening', opening)
  end
  return { 'closed', opening }
end
