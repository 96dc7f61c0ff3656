-- Counts lanes for the sampler, at a cost that does not grow with their tasks. Changes nothing.
--
-- ARGV    2 spans of time ms, separated by commas; a negative one lies in the past
-- returns {now, then for each lane {scheduled, leased, delivered, dead, cancelled, expired, then
--         for the pulled tasks and the earliest called destinations {destination, its earliest
--         due ms, its earliest due ms after now or '', waiting tasks, tasks due by now + each
--         span}}, or '' if it has no tasks}
-- uses: constants, now, lanes
local spans = {}
for span in string.gmatch(ARGV[2], '[^,]+') do spans[#spans + 1] = tonumber(span) end

local function schedule_of(tag, destination, earliest)
  local key = prefix .. 'DELAY_SIMPLE_TOPIC_TASK' .. tag .. ':' .. destination
  local next = earliest
  if earliest <= now then
    local after = redis.call('ZRANGEBYSCORE', key, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    next = tonumber(after[2]) or ''
  end
  local counts = { destination, earliest, next, redis.call('ZCARD', key) }
  for i = 1, #spans do
    local by = now + spans[i]
    counts[4 + i] = earliest > by and 0 or redis.call('ZCOUNT', key, '-inf', by)
  end
  return counts
end

local answer = { now }
for i = 1, #KEYS do
  local tag = string.sub(KEYS[i], tag_at)
  -- Each task has a body, from its add until it is purged.
  local waiting = redis.call('HLEN', prefix .. 'DELAY_REALL_TOPIC_TASK' .. tag)
  if waiting == 0 then
    answer[i + 1] = ''
  else
    local lane = { 0 }
    for _, role in ipairs({ 'LEASED', 'DELIVERED', 'DEAD', 'CANCELLED', 'EXPIRED' }) do
      local count = redis.call('ZCARD', prefix .. 'DELAY_' .. role .. '_TOPIC_TASK' .. tag)
      waiting = waiting - count
      lane[#lane + 1] = count
    end
    lane[1] = math.max(waiting, 0)
    local pulled = score_at(prefix .. 'DELAY_SIMPLE_TOPIC_TASK' .. tag .. ':@pull', 0)
    if pulled then lane[#lane + 1] = schedule_of(tag, '@pull', pulled) end
    local called = redis.call('ZRANGE', KEYS[i], 0, MAX_SAMPLED - 1, 'WITHSCORES')
    for k = 1, #called, 2 do
      lane[#lane + 1] = schedule_of(tag, called[k], tonumber(called[k + 1]))
    end
    answer[i + 1] = lane
  end
end
return answer
