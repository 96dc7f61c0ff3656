-- Stores new tasks of one lane that are only to be delivered, each once however often this is
-- repeated.    (nothing) -> scheduled
--
-- It is the script that runs most. Each function that a script builds costs more than a task, so it
-- has few; for the same reason it writes records itself, makes texts of numbers as seldom as it
-- can, and has one command for all tasks of a destination.
--
-- KEYS    the first four of lib/keys.lua
-- ARGV    2 the topic's number of lanes (see lib/open.lua); then for each destination: its name, the
--         number of its tasks, and of each the id, "<ms>" (a moment) or "+<ms>" (after now), and the
--         tail of its record (see lib/record.lua)
-- returns what lib/open.lua answers, or {now, then for each task that was there before: its place
--         among the tasks, from 0, and its due ms or, where the id is another task's, -1}
--
-- A task is scheduled only where its body was new: repeated after a lost reply, once the task has
-- been claimed, anything else would leave it scheduled and leased.
-- uses: now, keys, record
-- include: open
local answer = { now }
local now_text = string.format('%d', now)
local created = ' ' .. now_text .. ' '
local place = 0

local function store(destination, first, count)
  local ids = {}
  for n = 1, count do ids[n] = ARGV[first + 3 * (n - 1)] end
  local there = redis.call('HMGET', BODIES, unpack(ids))
  local bodies, scores, size, earliest = {}, {}, 0, math.huge
  for n, id in ipairs(ids) do
    local moment, tail = ARGV[first + 3 * n - 2], ARGV[first + 3 * n - 1]
    if there[n] then
      answer[#answer + 1] = place
      answer[#answer + 1] = due_of_same(there[n], tail) or -1
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
      scores[size + 1], scores[size + 2] = moment, id
      size = size + 2
    end
    place = place + 1
  end
  if size == 0 then return end
  redis.call('HSET', BODIES, unpack(bodies))
  redis.call('ZADD', SCHEDULES .. destination, unpack(scores))
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
