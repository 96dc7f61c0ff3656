-- Stores nothing unless the lane is open to tasks of a topic with this number of lanes. These are
-- statements, not a function, because building one costs more than all of this: a script includes
-- them by a line `-- include: open`.
--
-- ARGV[2]  the topic's number of lanes: "<n>", or "<n> <token>" after the registry has confirmed it
-- returns  {'closed', token}: ask the registry, then send the call again with the token;
--          or {'stale', n}: the lane holds tasks of a topic with n lanes
--
-- "#shards" in the offsets says that the lane is open, and to which number. "#opening" is the token
-- for opening it. The deletion of a topic removes both before it removes the topic (leave.lua), so
-- a number that was confirmed before then opens nothing.
-- uses: keys
local shards = redis.call('HGET', OFFSETS, '#shards')
if shards ~= ARGV[2] then
  local asked, token = string.match(ARGV[2], '^(%d+) ?(.*)$')
  if shards ~= asked then
    if shards and redis.call('HLEN', BODIES) > 0 then return { 'stale', tonumber(shards) } end
    local opening = redis.call('HGET', OFFSETS, '#opening')
    if not opening or opening ~= token then
      if not opening then
        local time = redis.call('TIME')
        opening = time[1] .. '.' .. time[2]
        redis.call('HSET', OFFSETS, '#opening', opening)
      end
      return { 'closed', opening }
    end
    redis.call('HSET', OFFSETS, '#shards', asked)
    redis.call('HDEL', OFFSETS, '#opening')
  end
end
