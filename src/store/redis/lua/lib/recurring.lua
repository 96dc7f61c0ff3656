-- The recurring schedules of a lane: their records, and the occurrence that was planned last. No
-- other file splits or joins this text.
--
--   "1 <revision> <set> <since> <cursor> <before> <paused> <origin> <ran> <recent>\n<definition>"
--
--   1         the version of the text
--   revision  16 hexadecimal digits
--   set       when the definition was last set, ms
--   since     only moments after this one are planned, ms
--   cursor    the local time and the zone of the moment that was planned last, or -
--   before    "<since>,<cursor>" before that plan, or -
--   paused    o<ms> (by an operator), m<ms> (by a mover), or -
--   origin    the store that the schedule came from, or -
--   ran       the last occurrence that was handed out before the newest one, or -
--   recent    "<id>@<nominal ms>,...", the newest first, or -
-- uses: constants, keys, entry, record, entries, schedule, lease, ending

local function read_recurring(text)
  local revision, set, since, cursor, before, paused, origin, ran, recent, definition =
    string.match(text or '', '^1 (%x+) (%d+) (%d+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)\n(.*)$')
  if not revision then return nil end
  return {
    revision = revision, set = set, since = since, cursor = cursor, before = before,
    paused = paused, origin = origin, ran = ran, recent = recent, definition = definition,
  }
end

local function write_recurring(plan)
  return table.concat({
    '1', plan.revision, plan.set, plan.since, plan.cursor, plan.before, plan.paused, plan.origin,
    plan.ran, plan.recent .. '\n' .. plan.definition,
  }, ' ')
end

-- The schedule of this name; nil if there is none.
local function recurring_of(name)
  local text = redis.call('HGET', RECURRING, name)
  if not text then return nil end
  return read_recurring(text) or error('the schedule ' .. name .. ' cannot be read')
end

-- The id and the nominal moment of the occurrence that was planned last; nil if there is none.
local function newest_of(plan)
  local id, moment = string.match(plan.recent, '^(%d+)@(%d+)')
  return id, tonumber(moment)
end

-- The record and the entry (nil if it has none) of a task that was never handed out and has not
-- ended; nil for any other. A mover's lease is no handing out.
local function never_handed_out(id)
  local record = id and redis.call('HGET', BODIES, id)
  if not record then return nil end
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw) or nil
  if raw and not (entry and entry.mark == '-' and entry.attempts == 0) then return nil end
  return record, entry
end

-- Removes the occurrence that was planned last, if it was never handed out, and sets the schedule
-- back to before that plan. Returns its nominal moment; nil if nothing was removed.
local function withdraw_newest(plan)
  local id, moment = newest_of(plan)
  local record, entry = never_handed_out(id)
  if not record then return nil end
  entry = entry or fresh_entry(destination_of(record))
  if lease_lasts(deadline_of(id)) then
    -- A mover has it, and learns of the cancel.
    entry.mark = '!'
    keep(id, entry)
  else
    lift(id, entry.destination)
    entry.current, entry.past, entry.outcome = '*', '*', UNPLANNED
    finish(id, entry, 'cancelled')
  end
  local since, cursor = string.match(plan.before, '^(%d+),(%S+)$')
  if since then plan.since, plan.cursor = since, cursor end
  plan.before = '-'
  local rest = string.match(plan.recent, '^%d+@%d+,(.+)$')
  plan.recent = rest or '-'
  return moment
end

-- Removes the newest occurrences, as long as they were never handed out: a worker may have given
-- one back after the next one was planned. Returns the nominal moment of the oldest one that was
-- removed; nil if nothing was removed.
local function withdraw(plan)
  local oldest
  repeat
    local moment = withdraw_newest(plan)
    oldest = moment or oldest
  until not moment
  return oldest
end

-- Stores a schedule, and when a planner looks at it again; nil: never.
local function put_recurring(name, plan, look)
  local text = write_recurring(plan)
  redis.call('HSET', RECURRING, name, text)
  if look then
    redis.call('ZADD', PLANS, look, name)
  else
    redis.call('ZREM', PLANS, name)
  end
  return text
end
