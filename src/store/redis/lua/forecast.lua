-- Counts the tasks on some schedules by due moment. Changes nothing.
--
-- ARGV    2 the first moment, in Unix ms (0: now); 3 step ms; 4 number of steps; 5.. destinations
-- returns {first moment, {due by then, due within the first step after it, ...}, called
--         destinations of the lane}
-- uses: now, keys
local from, step, steps = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
if from == 0 then from = now end
local counts = {}
for i = 1, steps + 1 do counts[i] = 0 end
for i = 5, #ARGV do
  local key = SCHEDULES .. ARGV[i]
  local all, counted = redis.call('ZCARD', key), 0
  for k = 0, steps do
    if counted == all then break end
    local up_to = redis.call('ZCOUNT', key, '-inf', from + k * step)
    counts[k + 1] = counts[k + 1] + up_to - counted
    counted = up_to
  end
end
return { from, counts, redis.call('ZRANGE', DESTINATIONS, 0, -1) }
