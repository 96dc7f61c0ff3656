-- Stores new tasks of one lane that are only to be delivered, each once however often this is repeated.    (nothing) -> scheduled
--
-- It is the script that runs most, so it stands alone: what lane.lua defines costs every call more than a task. For the same reason it
-- makes texts of numbers as seldom as it can, and has one command for all tasks of a destination.
--
-- KEYS    1 bodies, 2 offsets, 3 destinations, 4 schedules: as in lane.lua
-- ARGV    2 the topic's number of lanes (see open.lua); then for each destination: its name, the number of its tasks, and of each the id, "<ms>" (a moment)
--         or "+<ms>" (after now), and the tail of its record: "<destination> <options>\n<content>"
-- returns what open.lua answers, or {now, then for each task that was there before: its place among the tasks, from 0, and its due ms or,
--         where the id is another task's, -1}
--
-- A task is scheduled only where its body was new: repeated after a lost reply, once the task has been claimed,
-- anything else would leave it scheduled and leased.
local DESTINATIONS, SCHEDULES = KEYS[3], KEYS[4]

local answer = { now }
local now_text = string.format('%d', now)
local created = ' ' .. now_text .. ' '
local place = 0

-- What is answered for a task whose id has a record.
local function known(record, tail)
  local due, stored_tail = string.match(record, '^1 (%d+) %d+ (.*)$')
  return stored_tail == tail and tonumber(due) or -1
end

local function store(destination, first, count)
  local ids = {}
  for n = 1, count do ids[n] = ARGV[first + 3 * (n - 1)] end
  local there = redis.call('HMGET', BODIES, unpack(ids))
  local bodies, schedule, size, earliest = {}, {}, 0, math.huge
  for n, id in ipairs(ids) do
    local moment, tail = ARGV[first + 3 * n - 2], ARGV[first + 3 * n - 1]
    if there[n] then
      answer[#answer + 1] = place
      answer[#answer + 1] = known(there[n], tail)
    else
      local due = tonumber(moment)
      if string.byte(moment) == 43 then
        due = now + due
        moment = string.format('%d', due)
      elseif due < now then
        due, moment = now, now_text
      end
      if due < earliest then earliest = due end
      bodies[size + 1], bodies[size + 2] = id, '1 ' .. moment .. created .. tail
      schedule[size + 1], schedule[size + 2] = moment, id
      size = size + 2
    end
    place = place + 1
  end
  if size == 0 then return end
  redis.call('HSET', BODIES, unpack(bodies))
  redis.call('ZADD', SCHEDULES .. destination, unpack(schedule))
  if destination ~= '@pull' then
    redis.call('ZADD', DESTINATIONS, 'LT', earliest, destination)
  end
end

local at = 3
while at < #ARGV do
  local count = tonumber(ARGV[at + 1])
  store(ARGV[at], at + 2, count)
  at = at + 2 + 3 * count
end
return answer
