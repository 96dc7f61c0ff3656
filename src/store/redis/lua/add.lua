-- Stores new tasks that ask for nothing but their delivery, each once however often this is
-- repeated.    (nothing) -> scheduled
--
-- One call stores tasks of several lanes, or of one lane in a cluster. It costs less than a call
-- for each lane. The lanes do not depend on each other: an error in one leaves the others as they
-- are.
--
-- This script runs more often than any other. Each function that it builds costs more than a task.
-- For the same reason it writes records itself, avoids converting numbers to text, and has one
-- command for all tasks of a destination.
--
-- KEYS    for each lane the first four of lib/keys.lua: bodies, offsets, destinations, schedules
-- ARGV    for each lane: the topic's number of lanes (see lib/open.lua), and the number of
--         arguments that follow for the lane; these are for each destination: its name, the number
--         of its tasks, and for each of them the id, "<ms>" (a moment) or "+<ms>" (after now), and
--         the tail of its record (see lib/record.lua)
-- returns {now, then an answer for each lane}: 0 if all of its tasks are new; {for each task that
--         existed before: its index among the lane's tasks, from 0, and its due ms, or -1 if the id
--         belongs to another task}; the refusal of lib/open.lua; or {'failed', the error}
--
-- A task is scheduled only if its record was new: a call that is repeated after a lost answer, when
-- the task has been claimed, would otherwise leave it scheduled and leased.
-- uses: now
local now_text = string.format('%d', now)
local created = ' ' .. now_text .. ' '

-- Stores the tasks of one lane: those of the arguments from `at` to `last`.
local function store(bodies, offsets, destinations, schedules, number, at, last)
  if redis.call('HGET', offsets, '#shards') ~= number then
    -- uses: open
    local refusal = refusal_of(bodies, offsets, number)
    if refusal then return refusal end
  end
  local known, place = nil, 0
  while at < last do
    local destination, count, first = ARGV[at], tonumber(ARGV[at + 1]), at + 2
    at = first + 3 * count
    local there
    if count > 1 then
      local ids = {}
      for n = 1, count do ids[n] = ARGV[first + 3 * (n - 1)] end
      there = redis.call('HMGET', bodies, unpack(ids))
    end
    local records, scores, size, earliest = {}, {}, 0, math.huge
    for n = 1, count do
      local from = first + 3 * (n - 1)
      local id, moment, tail = ARGV[from], ARGV[from + 1], ARGV[from + 2]
      local due = tonumber(moment)
      if string.byte(moment) == 43 then
        due = now + due
        moment = string.format('%d', due)
      elseif due < now then
        due, moment = now, now_text
      end
      local record, before = '1 ' .. moment .. created .. tail, nil
      if there then
        before = there[n]
      elseif redis.call('HSETNX', bodies, id, record) == 0 then
        before = redis.call('HGET', bodies, id)
      end
      if before then
        -- uses: record
        known = known or {}
        known[#known + 1] = place
        known[#known + 1] = due_of_same(before, tail) or -1
      else
        if due < earliest then earliest = due end
        records[size + 1], records[size + 2] = id, record
        scores[size + 1], scores[size + 2] = moment, id
        size = size + 2
      end
      place = place + 1
    end
    if size > 0 then
      if there then redis.call('HSET', bodies, unpack(records)) end
      redis.call('ZADD', schedules .. destination, unpack(scores))
      if destination ~= '@pull' then
        redis.call('ZADD', destinations, 'LT', earliest, destination)
      end
    end
  end
  return known or 0
end

local answer, at = { now }, 2
for k = 1, #KEYS, 4 do
  local first = at + 2
  local last = at + 1 + tonumber(ARGV[at + 1])
  local is_done, result =
    pcall(store, KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[at], first, last)
  if not is_done then
    result = { 'failed', type(result) == 'table' and result.err or tostring(result) }
  end
  answer[#answer + 1] = result
  at = last + 1
end
return answer
