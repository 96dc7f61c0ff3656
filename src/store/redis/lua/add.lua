-- Stores new tasks of one lane that ask for nothing but their delivery, each once however often
-- this is repeated.    (nothing) -> scheduled
--
-- This script runs more often than any other. Each function that it builds costs more than a task,
-- so it builds none for new tasks. For the same reason it writes records itself, avoids converting
-- numbers to text, and has one command for all tasks of a destination.
--
-- ARGV    2 the topic's number of lanes (see lib/open.lua); then for each destination: its name,
--         the number of its tasks, and for each of them the id, "<ms>" (a moment) or "+<ms>" (after
--         now), and the tail of its record (see lib/record.lua)
-- returns the answer of lib/open.lua, or {now, then for each task that existed before: its index
--         among the tasks, from 0, and its due ms, or -1 if the id belongs to another task}
--
-- A task is scheduled only if its record was new: a call that is repeated after a lost answer, when
-- the task has been claimed, would otherwise leave it scheduled and leased.
-- uses: now, keys
-- include: open
local answer = { now }
local now_text = string.format('%d', now)
local created = ' ' .. now_text .. ' '
local place, at = 0, 3
while at < #ARGV do
  local destination, first, count = ARGV[at], at + 2, tonumber(ARGV[at + 1])
  local ids = {}
  for n = 1, count do ids[n] = ARGV[first + 3 * (n - 1)] end
  local there = redis.call('HMGET', BODIES, unpack(ids))
  local bodies, scores, size, earliest = {}, {}, 0, math.huge
  for n, id in ipairs(ids) do
    local moment, tail = ARGV[first + 3 * n - 2], ARGV[first + 3 * n - 1]
    if there[n] then
      -- uses: record
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
  if size > 0 then
    redis.call('HSET', BODIES, unpack(bodies))
    redis.call('ZADD', SCHEDULES .. destination, unpack(scores))
    if destination ~= '@pull' then
      redis.call('ZADD', DESTINATIONS, 'LT', earliest, destination)
    end
  end
  at = first + 3 * count
end
return answer
