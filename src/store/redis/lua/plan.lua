-- Plans the next occurrence of a recurring schedule, if the schedule is as the planner has read it.
-- (nothing) -> scheduled
--
-- ARGV    2 the topic's number of lanes (see lib/open.lua); 3 name; what the planner has read:
--         4 revision, 5 since, 6 cursor or -; if the last occurrence was never handed out: 7 how
--         many moments it stands for, or '', 8 until when they were counted, 9 ms of the next look;
--         otherwise: 10 id of the new occurrence, or '' after the last moment, 11 due ms,
--         12 destination, 13 options, 14 content, 15 its expires_after in ms or '', 16 nominal ms,
--         17 the new cursor, 18 the new since, 19 ms of the next look
-- returns the refusal of lib/open.lua, or {now, 'stale' | 'waits' | 'ended' | 'taken'}, or
--         {now, 'added', due ms}
-- uses: keys
if redis.call('HGET', OFFSETS, '#shards') ~= ARGV[2] then
  -- uses: open
  local refusal = refusal_of(BODIES, OFFSETS, ARGV[2])
  if refusal then return refusal end
end

-- uses: constants, now, keys, entry, record, expiry, schedule, recurring
local name, id = ARGV[3], ARGV[10]
local plan = recurring_of(name)
if not plan then return { now, 'stale' } end
local newest = newest_of(plan)
if newest and newest == id then
  -- A repeat after a lost answer.
  local record = redis.call('HGET', BODIES, id)
  return { now, 'added', record and due_of(record) or tonumber(ARGV[11]) }
end
if plan.paused ~= '-' or plan.revision ~= ARGV[4] or plan.since ~= ARGV[5] or plan.cursor ~= ARGV[6]
then
  return { now, 'stale' }
end

local waiting = never_handed_out(newest)
if waiting then
  if ARGV[7] ~= '' then
    local due, created, destination, options, content_at = read_record(waiting)
    if due then
      options = string.gsub(options, '"missed":%d+}', '"missed":' .. ARGV[7] .. '}', 1)
      local content = string.sub(waiting, content_at)
      local record = write_record(due, created, destination, options, content)
      redis.call('HSET', BODIES, newest, record)
    end
    plan.since = ARGV[8]
  end
  put_recurring(name, plan, ARGV[9])
  return { now, 'waits' }
end
if id == '' then
  put_recurring(name, plan, LAST_MOMENT)
  return { now, 'ended' }
end

-- The newest occurrence ran, unless it ended without being handed out.
local raw = newest and redis.call('HGET', ENTRIES, newest)
local entry = raw and read_entry(raw)
if entry and entry.attempts > 0 then plan.ran = newest end
local options = ARGV[13]
if plan.ran ~= '-' then
  options = string.gsub(options, '"after":0,', '"after":' .. plan.ran .. ',', 1)
end
local due = math.max(now, tonumber(ARGV[11]))
local at = string.format('%.0f', due)
if redis.call('HSETNX', BODIES, id, (write_record(at, now, ARGV[12], options, ARGV[14]))) == 0 then
  return { now, 'taken' }
end
schedule(id, ARGV[12], due)
set_expiry(id, due, tonumber(ARGV[15]))
plan.before = plan.since .. ',' .. plan.cursor
plan.cursor, plan.since = ARGV[17], ARGV[18]
local recent, count = { id .. '@' .. ARGV[16] }, 1
for earlier_one in string.gmatch(plan.recent, '%d+@%d+') do
  if count == MAX_RECENT then break end
  count = count + 1
  recent[count] = earlier_one
end
plan.recent = table.concat(recent, ',')
put_recurring(name, plan, ARGV[19])
return { now, 'added', due }
