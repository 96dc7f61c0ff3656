-- Stores new tasks of one lane of which more is asked than to be delivered, each once however often this is repeated.
-- (nothing) -> scheduled; scheduled -> scheduled (a push-back by key)
--
-- ARGV    2 the topic's number of lanes (see open.lua); then for each task: id, "<ms>" (a moment) or "+<ms>" (after now), destination, options, content, and
--         what else is asked of it (see sameness.lua)
-- returns what open.lua answers, or {now, then for each task the due ms stored; or -1 where the id is another task's, -2 over the quota,
--         -3 where the idempotency key was used for another; or {'duplicate' | 'replaced', id, due
--         ms, state} of the task
--         that was there; of a duplicate the state, or '' if it is forgotten}
local answer = { now }
for i = 3, #ARGV, 6 do
  local id, moment, destination, options, content = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local ms = tonumber(moment)
  local due = string.sub(moment, 1, 1) == '+' and now + ms or math.max(ms, now)
  answer[#answer + 1] = add_with_options(id, due, destination, options, content, cjson.decode(ARGV[i + 5]))
end
for destination, due in pairs(earliest) do
  if destination == '@pull' then
    -- It is not listed.
  elseif left[destination] then
    correct(destination)
  else
    redis.call('ZADD', DESTINATIONS, 'LT', due, destination)
  end
end
return answer
