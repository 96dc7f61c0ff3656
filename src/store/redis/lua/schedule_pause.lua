-- Pauses a recurring schedule, or ends its pause. Its occurrence: scheduled -> cancelled
--
-- ARGV    2 name; 3 o (an operator pauses it), m (a mover does), or '' (its pause ends)
-- returns {now, record or '' if there is no such schedule, ms of the next look or ''}
-- uses: now, keys, recurring
local name, kind = ARGV[2], ARGV[3]
local plan = recurring_of(name)
if not plan then return { now, '', '' } end
local before = string.sub(plan.paused, 1, 1)
if kind == '' and before ~= '-' then
  if before == 'o' then
    local _, last = newest_of(plan)
    plan.since = string.format('%.0f', math.max(now, tonumber(plan.since), last or 0))
  end
  plan.paused = '-'
  put_recurring(name, plan, now)
elseif kind ~= '' and before ~= kind and not (kind == 'm' and before == 'o') then
  if kind == 'o' then
    withdraw(plan)
  elseif plan.before ~= '-' then
    -- Without the state before its plan, the other store would not plan it again. It was given
    -- back, and moves as a task.
    withdraw_newest(plan)
  end
  plan.paused = kind .. string.format('%.0f', now)
  put_recurring(name, plan, nil)
end
return { now, write_recurring(plan), redis.call('ZSCORE', PLANS, name) or '' }
