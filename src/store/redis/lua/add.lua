-- Stores new tasks of one lane, each once however often this is repeated.    (nothing) -> scheduled
--
-- ARGV    2 the topic's number of lanes; then for each task: id, "@<ms>" (a moment) or "+<ms>" (after now),
--         destination, options, content
-- returns {whether the lane was empty, then for each task the due ms stored, or -1 where the id is another task's}
--
-- A task is scheduled only where its body was new: repeated after a lost reply, once the task has been claimed,
-- anything else would leave it scheduled and leased.
local was_empty = redis.call('HLEN', BODIES) == 0
if was_empty then
  redis.call('HSET', OFFSETS, '#shards', ARGV[2])
end
local answer = { was_empty and 1 or 0 }
local earliest = {}
for i = 3, #ARGV, 5 do
  local id, moment, destination, options, content = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local ms = tonumber(string.sub(moment, 2))
  local due = string.sub(moment, 1, 1) == '+' and now + ms or math.max(ms, now)
  local tail = destination .. ' ' .. options .. '\n' .. content
  local record = '1 ' .. due .. ' ' .. now .. ' ' .. tail
  if redis.call('HSETNX', BODIES, id, record) == 1 then
    redis.call('ZADD', SCHEDULES .. destination, due, id)
    if due < (earliest[destination] or math.huge) then earliest[destination] = due end
  else
    local stored = redis.call('HGET', BODIES, id)
    local stored_due, _, stored_tail = string.match(stored, '^1 (%d+) (%d+) (.*)$')
    due = stored_tail == tail and tonumber(stored_due) or -1
  end
  answer[#answer + 1] = due
end
for destination, due in pairs(earliest) do
  if destination ~= '@pull' then
    redis.call('ZADD', DESTINATIONS, 'LT', due, destination)
  end
end
return answer
