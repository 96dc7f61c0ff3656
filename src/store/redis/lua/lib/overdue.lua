-- What a claim ends before it leases: leases that ran out, tasks that expired, and tasks that fell
-- due in a pause.
--
-- ARGV    7 most leases swept; 8 most bytes of records; 10 most tasks ended; 11 past pauses: '', or
--         "<from ms> <to ms> <what becomes of the tasks> ..."
-- uses: constants, now, keys, entry, record, entries, expiry, schedule, ending, sweep

local SWEPT = {
  push_lease = 1, pull_lease = 2, cancelled = 3, leases_ran_out = 4, unreadable = 5, expired = 6,
  misfired_expired = 7, misfired_dead = 8, skipped = 9,
}

-- How many of each the claim has ended, in the order of SWEPT, and then the earliest moment that a
-- task waits for that a mover's lease returned; nil if none.
local swept

local function tally(what, count)
  swept = swept or { 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  swept[SWEPT[what]] = swept[SWEPT[what]] + (count or 1)
end

local function sweep_and_count(id, deadline)
  local lease, ended, due = sweep_one(id, tonumber(deadline))
  if lease then tally(lease) end
  if ended then tally(ended) end
  if due then
    tally('push_lease', 0)
    swept[10] = math.min(swept[10] or due, due)
  end
end

-- Ends expired leases.
local function sweep()
  local most = tonumber(ARGV[7])
  local passed = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #passed, 2 do
    sweep_and_count(passed[i], passed[i + 1])
  end
  local too_far = redis.call('ZRANGEBYSCORE', LEASED, '(' .. (now + FURTHEST_DEADLINE_MS), '+inf',
    'WITHSCORES', 'LIMIT', 0, most - #passed / 2)
  for i = 1, #too_far, 2 do
    sweep_and_count(too_far[i], too_far[i + 1])
  end
end

-- How many more tasks the claim may end.
local may_end = tonumber(ARGV[10])

-- Whether it had to leave some.
local is_cut = false

local function expire(id, entry, outcome)
  entry.outcome, entry.current, entry.past = outcome, '*', '*'
  finish(id, entry, 'expired')
end

-- Ends waiting tasks that have expired, the earliest first. Only a task that was never claimed has
-- to be read for that, to know its destination: at most the bytes of a claim.
local function end_expired(expired)
  local touched, read_bytes = {}, 0
  for _, id in ipairs(expired) do
    if may_end == 0 or read_bytes >= tonumber(ARGV[8]) then
      is_cut = true
      break
    end
    local entry = entry_or_fresh(id, nil)
    if not entry.destination then
      local record = redis.call('HGET', BODIES, id) or ''
      entry.destination = destination_of(record)
      read_bytes = read_bytes + #record
    end
    if entry.destination and redis.call('ZREM', SCHEDULES .. entry.destination, id) == 1 then
      touched[entry.destination] = true
      expire(id, entry, EXPIRED)
      tally('expired')
    else
      -- It does not wait. No script leaves such an item behind, and it must not be met again and
      -- again.
      redis.call('ZREM', EXPIRIES, id)
    end
    may_end = may_end - 1
  end
  for destination in pairs(touched) do correct(destination) end
end

local misfires = {}
for from, to, becomes in string.gmatch(ARGV[11], '(%S+) (%S+) (%S+)') do
  misfires[#misfires + 1] = { from = tonumber(from), to = tonumber(to), becomes = becomes }
end

-- Ends tasks that fell due in a pause, the earliest of each pause first.
local function end_misfired(destination)
  local key = SCHEDULES .. destination
  for _, misfire in ipairs(misfires) do
    local ids = redis.call('ZRANGEBYSCORE', key, misfire.from, math.min(misfire.to, now),
      'LIMIT', 0, may_end + 1)
    for _, id in ipairs(ids) do
      if may_end == 0 then
        is_cut = true
        return
      end
      redis.call('ZREM', key, id)
      local entry = entry_or_fresh(id, destination)
      if misfire.becomes == 'dead' then
        entry.outcome = MISFIRED
        die(id, entry)
      else
        expire(id, entry, MISFIRED)
      end
      tally('misfired_' .. misfire.becomes)
      may_end = may_end - 1
    end
  end
end

-- Whether a due task is to be ended, by the next call.
local function is_to_end(id, due)
  for _, misfire in ipairs(misfires) do
    if misfire.from <= due and due <= misfire.to then return true end
  end
  local expires = is_cut and has_expiries() and tonumber(redis.call('ZSCORE', EXPIRIES, id) or nil)
  return expires and expires <= now
end

-- The first due tasks of a destination: at most `slots`, and none behind a task that is to be
-- ended. Also returns how many there are with those behind it.
local function due_before_ends(destination, slots)
  local ids = {}
  local due = redis.call('ZRANGEBYSCORE', SCHEDULES .. destination, '-inf', now, 'WITHSCORES',
    'LIMIT', 0, slots)
  for i = 1, #due, 2 do
    if is_to_end(due[i], tonumber(due[i + 1])) then
      is_cut = is_cut or may_end == 0
      break
    end
    ids[#ids + 1] = due[i]
  end
  return ids, #due / 2
end

-- Whether a task was handed out and has not ended.
local function is_unsettled(id)
  if redis.call('HEXISTS', BODIES, id) == 0 then return false end
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw)
  return not raw or (entry and (entry.mark == '-' or entry.mark == '!'))
end

-- Ends an occurrence of a recurring schedule that was never handed out, if the occurrence before it
-- has not ended. Returns whether it did.
local function end_overlapping(id, before_id, destination)
  local entry = entry_or_fresh(id, destination)
  if entry.attempts > 0 or not is_unsettled(before_id) then return false end
  expire(id, entry, SKIPPED)
  tally('skipped')
  return true
end
