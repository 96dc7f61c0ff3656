-- Checks the earliest due moment of each destination of the lane.
--
-- ARGV    2 'destinations'; 9.. names to check; the others in lib/check.lua
-- returns see lib/check.lua
-- uses: keys, schedule, check

-- Checks a destination's earliest due moment.
local function judge_destination(name)
  local head = redis.call('ZRANGE', SCHEDULES .. name, 0, 0, 'WITHSCORES')
  local listed = redis.call('ZSCORE', DESTINATIONS, name)
  if not is_destination(name) then
    if listed and find('unreadable-destination', name) then
      redis.call('ZREM', DESTINATIONS, name)
    end
  elseif name == '@pull' then
    if listed and find('called-wrong', name) then redis.call('ZREM', DESTINATIONS, name) end
  elseif head[2] and head[2] ~= listed then
    if find('earliest-wrong', name) then correct(name) end
  elseif listed and not head[2] then
    if find('listed-without-schedule', name) then correct(name) end
  end
end

for i = FIRST_NAME, #ARGV do judge_destination(ARGV[i]) end
return { '0', 0, '', findings, {}, '' }
