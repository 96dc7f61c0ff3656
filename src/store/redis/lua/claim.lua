-- Sweeps expired leases, ends tasks that expired or fell due in a pause, then leases due tasks
-- under the lane's lock. scheduled -> leased | expired | dead
--
-- ARGV    2 receipt; 3 lease ms; 4 lock token ('' bypasses the lock); 5 1 if the holder will claim
--         again at once, else 0; 6 due destinations that the outlook skips; 7 most leases swept;
--         8 most bytes of records; 9 most destinations of the outlook; 10 most tasks ended; 11 past
--         pauses: '', or "<from ms> <to ms> <what becomes of the tasks> ..."; 12 bytes that the
--         holder has already; then pairs of destination and slots
-- returns {0, ms left of another's lock}, or
--         {1, now, {id, attempt, record, ...}, {due destination, ...}, next moment or ''}, with a
--         sixth item if the call ended anything: the number of each, in the order of SWEPT
--
-- The lock is set by SET NX EX in this script: a SET of its own would be refused at maxmemory,
-- where this script (allow-oom) still runs. It is kept only between the claims of one burst.
-- Correctness depends on this script being atomic, never on the lock.
-- uses: now, keys, entry, record, entries, expiry, schedule, lease, ending, sweep
local receipt, lease_ms, token = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local max_bytes = tonumber(ARGV[8])

-- A claim that wants nothing takes no lock: if every destination of a lane is blocked, it is polled
-- each second without writing.
local FIRST_WANT = 13
local takes = #ARGV >= FIRST_WANT
if token ~= '' and takes and not redis.call('SET', LOCK, token, 'NX', 'EX', 2) then
  if redis.call('GET', LOCK) ~= token then
    local left = redis.call('PTTL', LOCK)
    if left >= 0 and left <= 2000 then return { 0, left } end
    -- Longer than any lock lasts: the server's clock was set back, and the lock of a dead holder
    -- would block the lane.
    redis.call('SET', LOCK, token, 'EX', 2)
  end
end

-- What a call may end, beside the tasks that it hands out.
local SWEPT = {
  push_lease = 1, pull_lease = 2, cancelled = 3, leases_ran_out = 4, unreadable = 5, expired = 6,
  misfired_expired = 7, misfired_dead = 8,
}
local swept
local function tally(what)
  swept = swept or { 0, 0, 0, 0, 0, 0, 0, 0 }
  swept[SWEPT[what]] = swept[SWEPT[what]] + 1
end

local function sweep_and_count(id, deadline)
  local lease, ended = sweep_one(id, tonumber(deadline))
  if lease then tally(lease) end
  if ended then tally(ended) end
end

-- Ends expired leases, at most this many.
local function sweep(most)
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
sweep(tonumber(ARGV[7]))

local EXPIRED, MISFIRED = 'not delivered in time', 'fell due while the topic was paused'
-- How many more tasks this call may end, and whether it had to leave some.
local may_end, is_cut = tonumber(ARGV[10]), false

local function expire(id, entry, outcome)
  entry.outcome, entry.current, entry.past = outcome, '*', '*'
  finish(id, entry, 'expired')
end

-- Ends waiting tasks that have expired, the earliest first. Only a task that was never claimed has
-- to be read for that, to know its destination: at most the bytes of a claim.
local function end_expired()
  local touched, read_bytes = {}, 0
  local expired = redis.call('ZRANGEBYSCORE', EXPIRIES, '(0', now, 'LIMIT', 0, may_end + 1)
  for _, id in ipairs(expired) do
    if may_end == 0 or read_bytes >= max_bytes then
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
if has_expiries() then end_expired() end

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

local deadline = string.format('%d', now + lease_ms)
local bytes = tonumber(ARGV[12])

-- The first due tasks of a destination: at most `slots`, and none behind a task that is to be
-- ended. Also returns how many there are with those behind it.
local function due_tasks(destination, slots)
  local key = SCHEDULES .. destination
  if not is_cut and not misfires[1] then
    local ids = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, slots)
    return ids, #ids
  end
  local ids = {}
  local due = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, slots)
  for i = 1, #due, 2 do
    if is_to_end(due[i], tonumber(due[i + 1])) then
      is_cut = is_cut or may_end == 0
      break
    end
    ids[#ids + 1] = due[i]
  end
  return ids, #due / 2
end

-- The records of the first of these tasks, as far as the bytes last, and their number. Reads larger
-- and larger parts, so that little is read in vain.
local function read_records(ids)
  local records, count = {}, 0
  while count < #ids do
    local last = math.min(#ids, math.max(8, math.min(2 * count, count + 500)))
    local part = redis.call('HMGET', BODIES, unpack(ids, count + 1, last))
    for i = 1, last - count do
      local record = part[i]
      if record and bytes > 0 and bytes + #record > max_bytes then return records, count end
      count = count + 1
      records[count] = record
      bytes = bytes + (record and #record or 0)
    end
  end
  return records, count
end

-- The tasks whose records this version can read. The others become dead: leased, they would return
-- again and again. They are part of the answer, so that the caller logs them.
local function readable(ids, records, count, destination, leased)
  local good_ids, good_records = {}, {}
  for i = 1, count do
    local id = ids[i]
    if records[i] and destination_of(records[i]) then
      good_ids[#good_ids + 1] = id
      good_records[#good_records + 1] = records[i]
    else
      local entry = entry_or_fresh(id, destination)
      bury(id, entry)
      tally('unreadable')
      leased[#leased + 1] = id
      leased[#leased + 1] = entry.attempts
      leased[#leased + 1] = records[i]
    end
  end
  return good_ids, good_records
end

-- The entry of a task that is leased now, and the number of the attempt.
local function leased_entry(raw, destination)
  local entry = raw and read_entry(raw) or fresh_entry(destination)
  entry.attempts = entry.attempts + 1
  retire_receipt(entry, MAX_RECEIPTS - 1)
  entry.current, entry.lease = receipt, destination == '@pull' and 'c' or 'w'
  return write_entry(entry), entry.attempts
end

-- Writes the leases of up to 500 tasks at once, because unpack is bounded, and appends them to the
-- answer.
local function lease(ids, records, destination, first, last, leased)
  local raw = redis.call('HMGET', ENTRIES, unpack(ids, first, last))
  local at_first = leased_entry(false, destination)
  local deadlines, entries = {}, {}
  for i = first, last do
    local entry, attempt = at_first, 1
    if raw[i - first + 1] then entry, attempt = leased_entry(raw[i - first + 1], destination) end
    deadlines[#deadlines + 1] = deadline
    deadlines[#deadlines + 1] = ids[i]
    entries[#entries + 1] = ids[i]
    entries[#entries + 1] = entry
    leased[#leased + 1] = ids[i]
    leased[#leased + 1] = attempt
    leased[#leased + 1] = records[i]
    if has_expiries() then turn_expiry(ids[i], -1) end
  end
  redis.call('ZADD', LEASED, unpack(deadlines))
  redis.call('HSET', ENTRIES, unpack(entries))
end

local leased, cut = {}, false
for i = FIRST_WANT, #ARGV, 2 do
  local destination, slots = ARGV[i], tonumber(ARGV[i + 1])
  if misfires[1] then end_misfired(destination) end
  local due, found = due_tasks(destination, slots)
  local records, taken = read_records(due)
  local offset
  if taken > 0 then
    offset = redis.call('ZSCORE', SCHEDULES .. destination, due[taken])
    local ids
    ids, records = readable(due, records, taken, destination, leased)
    for first = 1, #ids, 500 do
      lease(ids, records, destination, first, math.min(first + 499, #ids), leased)
    end
    redis.call('ZREMRANGEBYRANK', SCHEDULES .. destination, 0, taken - 1)
  end
  cut = cut or taken == slots or taken < found
  if correct(destination) and offset then redis.call('HSET', OFFSETS, destination, offset) end
end

local due = redis.call('ZRANGEBYSCORE', DESTINATIONS, '-inf', now, 'LIMIT', ARGV[6], ARGV[9])
local later = redis.call('ZRANGEBYSCORE', DESTINATIONS, '(' .. now, '+inf', 'WITHSCORES',
  'LIMIT', 0, 1)
local lease_end = redis.call('ZRANGE', LEASED, 0, 0, 'WITHSCORES')
local next_moment = tonumber(later[2] or lease_end[2] or nil)
if next_moment and lease_end[2] then
  next_moment = math.min(next_moment, tonumber(lease_end[2]))
end
if has_expiries() then
  local expires = redis.call('ZRANGEBYSCORE', EXPIRIES, '(0', '+inf', 'WITHSCORES',
    'LIMIT', 0, 1)[2]
  if expires then
    next_moment = math.min(next_moment or math.huge, math.max(now, tonumber(expires)))
  end
end
if is_cut then next_moment = now end

if token ~= '' then
  if takes and ARGV[5] == '1' and cut and #due > 0 then
    redis.call('PEXPIRE', LOCK, 2000)
  elseif takes or redis.call('GET', LOCK) == token then
    redis.call('DEL', LOCK)
  end
end
return { 1, now, leased, due, next_moment or '', swept }
