-- Sweeps expired leases, ends tasks that expired or fell due in a pause, then leases due tasks
-- under the lane's lock. scheduled -> leased | expired | dead
--
-- ARGV    2 receipt; 3 lease ms; 4 lock token ('' bypasses the lock); 5 1 if the holder will claim
--         again at once, else 0; 6 where the page of due destinations begins: '' or a moment,
--         for those after it, or 'moment destination', for those after that one; 7 most leases
--         swept; 8 most bytes of records; 9 most destinations of the page; 10 most tasks ended;
--         11 past pauses, see lib/overdue.lua; 12 bytes that the holder has already; then pairs of
--         destination and slots
-- returns {0, ms left of another's lock}, or
--         {1, now, {id, attempt, record, ...}, {due destination, ...}, next moment or ''}, with a
--         sixth item if the call ended anything: what lib/overdue.lua counts; and with a seventh
--         if the page is full: the moment of its last destination. Wanted destinations that are
--         still due stand behind the page.
--
-- Many calls find the lane locked, or nothing due. So the cheap checks come first, and functions
-- are built where it is known that they are needed.
-- uses: keys
local FIRST_WANT = 13
local token, takes = ARGV[4], #ARGV >= FIRST_WANT

-- Correctness depends on this script being atomic, never on the lock. The lock only exists between
-- the claims of one burst. This script writes it: a SET of its own would be refused at maxmemory,
-- where this script (allow-oom) still runs. A claim that wants nothing is never refused: if every
-- destination of a lane is blocked, it is polled each second.
local has_lock = false
if token ~= '' then
  local holder = redis.call('GET', LOCK)
  has_lock = holder == token
  if takes and holder and not has_lock then
    local left = redis.call('PTTL', LOCK)
    if left >= 0 and left <= 2000 then return { 0, left } end
    -- Longer than any lock lasts: the server's clock was set back, and the lock of a dead holder
    -- would block the lane.
    has_lock = true
  end
end

-- uses: constants, now, expiry, schedule, overdue
local function first_lease_end()
  return tonumber(redis.call('ZRANGE', LEASED, 0, 0, 'WITHSCORES')[2] or nil)
end
local lease_end = first_lease_end()
local last_end = lease_end and tonumber(redis.call('ZRANGE', LEASED, -1, -1, 'WITHSCORES')[2])
if lease_end and (lease_end <= now or last_end > now + FURTHEST_DEADLINE_MS) then
  -- uses: overdue
  sweep()
  lease_end = first_lease_end()
end

local expired = has_expiries()
  and redis.call('ZRANGEBYSCORE', EXPIRIES, '(0', now, 'LIMIT', 0, may_end + 1)
if expired and expired[1] then
  -- uses: overdue
  end_expired(expired)
end

local first_due
if is_cut or ARGV[11] ~= '' then
  -- uses: overdue
  for i = FIRST_WANT, #ARGV, 2 do end_misfired(ARGV[i]) end
  first_due = due_before_ends
end

local wants, is_due = {}, false
for i = FIRST_WANT, #ARGV, 2 do
  local want = { destination = ARGV[i], slots = tonumber(ARGV[i + 1]), taken = 0 }
  if first_due then
    want.ids, want.found = first_due(want.destination, want.slots)
  else
    want.ids = redis.call('ZRANGEBYSCORE', SCHEDULES .. want.destination, '-inf', now,
      'LIMIT', 0, want.slots)
    want.found = #want.ids
  end
  is_due = is_due or want.ids[1]
  wants[#wants + 1] = want
end

local leased = {}
if is_due then
  -- uses: constants, keys, entry, record, expiry
  local receipt, lease_ms = ARGV[2], tonumber(ARGV[3])
  local deadline = string.format('%d', now + lease_ms)
  local bytes, max_bytes = tonumber(ARGV[12]), tonumber(ARGV[8])

  -- The records of the first of these tasks, as far as the bytes last, and their number. Reads
  -- larger and larger parts, so that little is read in vain.
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

  -- Ends a task that this version cannot read: leased, it would return again and again. It is part
  -- of the answer, so that the caller logs it.
  local function end_unreadable(id, record, destination)
    -- uses: entries, ending, overdue
    local entry = entry_or_fresh(id, destination)
    bury(id, entry)
    tally('unreadable')
    local size = #leased
    leased[size + 1], leased[size + 2], leased[size + 3] = id, entry.attempts, record
  end

  -- The entry of a task that is leased now, and the number of the attempt.
  local function leased_entry(raw, destination)
    local entry = raw and read_entry(raw) or fresh_entry(destination)
    entry.attempts = entry.attempts + 1
    retire_receipt(entry, MAX_RECEIPTS - 1)
    entry.current, entry.lease = receipt, destination == '@pull' and 'c' or 'w'
    return write_entry(entry), entry.attempts
  end

  -- Writes the leases of up to 500 tasks at once, because unpack is bounded, and appends them to
  -- the answer.
  local function lease(ids, records, destination, first, last)
    local raw = redis.call('HMGET', ENTRIES, unpack(ids, first, last))
    local at_first = leased_entry(false, destination)
    local deadlines, entries = {}, {}
    for i = first, last do
      local entry, attempt = at_first, 1
      if raw[i - first + 1] then entry, attempt = leased_entry(raw[i - first + 1], destination) end
      local id, at, size = ids[i], 2 * (i - first), #leased
      deadlines[at + 1], deadlines[at + 2] = deadline, id
      entries[at + 1], entries[at + 2] = id, entry
      leased[size + 1], leased[size + 2], leased[size + 3] = id, attempt, records[i]
      if has_expiries() then turn_expiry(ids[i], -1) end
    end
    redis.call('ZADD', LEASED, unpack(deadlines))
    redis.call('HSET', ENTRIES, unpack(entries))
    lease_end = math.min(lease_end or math.huge, now + lease_ms)
  end

  for _, want in ipairs(wants) do
    local destination = want.destination
    local records, taken = read_records(want.ids)
    if taken > 0 then
      want.taken = taken
      want.offset = redis.call('ZSCORE', SCHEDULES .. destination, want.ids[taken])
      local good_ids, good_records = {}, {}
      for i = 1, taken do
        local id, record = want.ids[i], records[i]
        local known, first_of_options
        if record then known, first_of_options = start_of(record) end
        local before_id = first_of_options == '{' and occurrence_before(record)
        local is_over = false
        if before_id then
          -- uses: overdue
          is_over = end_overlapping(id, before_id, destination)
        end
        if not known then
          end_unreadable(id, record, destination)
        elseif not is_over then
          good_ids[#good_ids + 1] = id
          good_records[#good_records + 1] = record
        end
      end
      for first = 1, #good_ids, 500 do
        lease(good_ids, good_records, destination, first, math.min(first + 499, #good_ids))
      end
      redis.call('ZREMRANGEBYRANK', SCHEDULES .. destination, 0, taken - 1)
    end
  end
end

local cut, still_due = false, {}
for _, want in ipairs(wants) do
  cut = cut or want.taken == want.slots or want.taken < want.found
  local earliest = correct(want.destination)
  if earliest and want.offset then
    redis.call('HSET', OFFSETS, want.destination, want.offset)
  end
  if (tonumber(earliest) or math.huge) <= now then
    still_due[#still_due + 1] = want.destination
  end
end

local function due_page(limit)
  local moment, last = string.match(ARGV[6], '^(-?%d+) ?(.*)$')
  local from = moment and '(' .. moment or '-inf'
  if moment and last ~= '' then
    from = moment
    if tonumber(redis.call('ZSCORE', DESTINATIONS, last) or nil) == tonumber(moment) then
      -- An offset within the moment would have Redis walk over all that are before it.
      local first = redis.call('ZRANK', DESTINATIONS, last) + 1
      local due_ones = redis.call('ZCOUNT', DESTINATIONS, '-inf', now)
      local behind = math.min(first + limit, due_ones) - 1
      return first <= behind and redis.call('ZRANGE', DESTINATIONS, first, behind) or {}
    end
  end
  return redis.call('ZRANGEBYSCORE', DESTINATIONS, from, now, 'LIMIT', 0, limit)
end

local page_limit = tonumber(ARGV[9])
local due, page_end = due_page(page_limit), nil
if #due == page_limit then
  page_end = tonumber(redis.call('ZSCORE', DESTINATIONS, due[page_limit]))
end
if still_due[1] then
  local in_page = {}
  for _, destination in ipairs(due) do in_page[destination] = true end
  for _, destination in ipairs(still_due) do
    if not in_page[destination] then due[#due + 1] = destination end
  end
end
local later = redis.call('ZRANGEBYSCORE', DESTINATIONS, '(' .. now, '+inf', 'WITHSCORES',
  'LIMIT', 0, 1)
local next_moment = tonumber(later[2] or nil)
if lease_end then next_moment = math.min(next_moment or lease_end, lease_end) end
if has_expiries() then
  local expires = redis.call('ZRANGEBYSCORE', EXPIRIES, '(0', '+inf', 'WITHSCORES',
    'LIMIT', 0, 1)[2]
  if expires then
    next_moment = math.min(next_moment or math.huge, math.max(now, tonumber(expires)))
  end
end
if is_cut then next_moment = now end

if token ~= '' and takes and ARGV[5] == '1' and cut and #due > 0 then
  redis.call('SET', LOCK, token, 'EX', 2, has_lock and 'XX' or 'NX')
elseif has_lock then
  redis.call('DEL', LOCK)
end
if page_end then return { 1, now, leased, due, next_moment or '', swept or false, page_end } end
return { 1, now, leased, due, next_moment or '', swept }
