-- Finds the next moment at which a claim of each lane has something to do. Changes nothing.
--
-- ARGV    2 'workers', 'consumers' or 'planners'
-- returns {now, then for each lane that moment or ''}
--
-- It is the earliest due moment of the called, or pulled, tasks; for workers also the earliest
-- expiry; and the earliest lease deadline. A deadline that is too far away counts as expired: the
-- clock was set back.
--
-- For planners it is the earliest moment at which a recurring schedule is to be looked at.
-- uses: constants, now, lanes
local answer = { now }
if ARGV[2] == 'planners' then
  -- uses: constants
  for i = 1, #KEYS do
    local plans = prefix .. 'DELAY_PLANS_TOPIC_TASK' .. string.sub(KEYS[i], tag_at)
    local look = score_at(plans, 0)
    answer[i + 1] = look and look < LAST_MOMENT and look or ''
  end
  return answer
end

local is_for_workers = ARGV[2] == 'workers'
for i = 1, #KEYS do
  local tag = string.sub(KEYS[i], tag_at)
  local leased = prefix .. 'DELAY_LEASED_TOPIC_TASK' .. tag
  local expiries = prefix .. 'DELAY_EXPIRIES_TOPIC_TASK' .. tag
  local moment
  if is_for_workers then
    moment = score_at(KEYS[i], 0)
  else
    moment = score_at(prefix .. 'DELAY_SIMPLE_TOPIC_TASK' .. tag .. ':@pull', 0)
  end
  -- Most lanes have neither.
  if redis.call('EXISTS', leased, expiries) > 0 then
    moment = earlier(moment, score_at(leased, 0))
    local last = score_at(leased, -1)
    if last and last > now + FURTHEST_DEADLINE_MS then moment = earlier(moment, now) end
    if is_for_workers then
      -- Scores below zero are those of leased tasks.
      local expires = redis.call('ZRANGEBYSCORE', expiries, '(0', '+inf', 'WITHSCORES',
        'LIMIT', 0, 1)[2]
      moment = earlier(moment, tonumber(expires))
    end
  end
  answer[i + 1] = moment or ''
end
return answer
