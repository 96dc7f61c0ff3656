-- Creates a recurring schedule, or changes its definition. (nothing) -> schedule; its occurrence:
-- scheduled -> cancelled
--
-- ARGV    2 the topic's number of lanes (see lib/open.lua); 3 name; 4 definition; 5 revision;
--         6 most schedules of the lane; for a schedule of another store also 7 origin (-: this
--         store); 8 set ms; 9 since ms; 10 cursor or -; 11 1 if an operator paused it, else 0
-- returns the refusal of lib/open.lua, or {now, 'too many' | 'taken' | 'own'}, or {now, 'created' |
--         'changed' | 'unchanged', record, ms of the next look or ''}
--
-- A schedule of another store only replaces itself, if it was set there since it was moved here.
-- 'unchanged': it was moved here before. 'own': this very store is the source.
-- uses: keys
if redis.call('HGET', OFFSETS, '#shards') ~= ARGV[2] then
  -- uses: open
  local refusal = refusal_of(BODIES, OFFSETS, ARGV[2])
  if refusal then return refusal end
end

-- uses: now, keys, recurring
local name, definition = ARGV[3], ARGV[4]
local plan, word = recurring_of(name), 'changed'
local origin, is_same = ARGV[7], false
if plan and origin then
  if plan.origin ~= origin then return { now, 'taken' } end
  if string.sub(plan.paused, 1, 1) == 'm' then return { now, 'own' } end
  is_same = tonumber(plan.set) >= tonumber(ARGV[8])
elseif plan then
  is_same = plan.definition == definition
end
if is_same then
  return { now, 'unchanged', write_recurring(plan), redis.call('ZSCORE', PLANS, name) or '' }
end
local at = string.format('%.0f', now)
if plan then
  local withdrawn = withdraw(plan)
  local _, last = newest_of(plan)
  -- A moment that has passed without being handed out is planned again, by the new definition.
  local since = withdrawn and withdrawn <= now and withdrawn - 1 or now
  since = math.max(origin and tonumber(ARGV[9]) or since, last or 0)
  plan.since, plan.cursor = string.format('%.0f', since), ARGV[10] or '-'
  plan.set, plan.before = ARGV[8] or at, '-'
  if origin then plan.paused = ARGV[11] == '1' and 'o' .. at or '-' end
else
  if redis.call('HLEN', RECURRING) >= tonumber(ARGV[6]) then return { now, 'too many' } end
  word = 'created'
  plan = {
    set = ARGV[8] or at, since = ARGV[9] or at, cursor = ARGV[10] or '-', before = '-',
    paused = ARGV[11] == '1' and 'o' .. at or '-', origin = origin or '-', ran = '-',
    recent = '-',
  }
end
plan.revision, plan.definition = ARGV[5], definition
local look = plan.paused == '-' and now or nil
return { now, word, put_recurring(name, plan, look), look or '' }
