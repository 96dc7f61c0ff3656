-- Checks that each recurring schedule can be read, and that a planner looks at it unless it is
-- paused.
--
-- ARGV    2 'recurring' | 'plans'; the others in lib/check.lua
-- returns see lib/check.lua; the names of the schedules
-- uses: now, keys, recurring, check
local names = {}

local function judge_recurring(name, text)
  names[#names + 1] = name
  local plan = read_recurring(text)
  if not plan then
    leave_alone('unreadable-schedule', name)
  elseif plan.paused == '-' and not redis.call('ZSCORE', PLANS, name)
    and find('schedule-without-plan', name) then
    redis.call('ZADD', PLANS, now, name)
  end
end

local function judge_plan(name)
  local text = redis.call('HGET', RECURRING, name)
  local plan = read_recurring(text)
  -- Whether one that cannot be read is paused is not known.
  if text and not plan then return end
  if (not plan or plan.paused ~= '-') and find('plan-without-schedule', name) then
    redis.call('ZREM', PLANS, name)
  end
end

if structure == 'recurring' then
  walk_names('HSCAN', RECURRING, judge_recurring)
else
  walk_names('ZSCAN', PLANS, judge_plan)
end
return { page_cursor, 0, '', findings, names, '' }
