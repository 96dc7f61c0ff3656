-- Checks that the lane remembers its topic's number of lanes, and lists its destinations.
--
-- ARGV    2 'lane'; the others in lib/check.lua
-- returns see lib/check.lua
-- uses: keys, check
local lanes = tonumber(ARGV[6])

local function judge_lane()
  if lanes > 0 and redis.call('HLEN', BODIES) > 0 then
    local remembered = redis.call('HGET', OFFSETS, '#shards')
    local is_wrong = not remembered or tonumber(remembered) ~= lanes
    if is_wrong and find('shards-differ', remembered or 'none') then
      redis.call('HSET', OFFSETS, '#shards', lanes)
    end
  end
  local names = redis.call('ZRANGE', DESTINATIONS, 0, -1)
  for _, name in ipairs(redis.call('HKEYS', OFFSETS)) do
    if name ~= '#shards' and name ~= '#opening' then names[#names + 1] = name end
  end
  return names
end

return { '0', 0, '', findings, judge_lane(), '' }
