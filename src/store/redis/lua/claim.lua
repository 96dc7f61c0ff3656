-- Sweeps leases that have run out, then leases due tasks under the lane's lock.    scheduled -> leased | dead, unreadable
--
-- ARGV    2 receipt; 3 lease ms; 4 lock token ('' goes past the lock); 5 whether the holder will claim again at once
--         (1) or not (0); 6 due destinations the outlook passes over; 7 most leases swept; 8 most body bytes;
--         9 most destinations of the outlook; then pairs of destination and slots
-- returns {0, ms left of another's lock}, or
--         {1, now, {id, destination, attempt, record, ...}, {due destination, ...}, next moment or ''}
--
-- The lock is taken by SET NX EX in here, for a SET of its own would be refused at maxmemory, where this script
-- (allow-oom) still runs. It is kept only between the claims of one burst. Correctness rests on this script being
-- atomic, never on the lock.
local receipt, lease_ms, token = ARGV[2], tonumber(ARGV[3]), ARGV[4]
local max_bytes = tonumber(ARGV[8])

-- A look takes no lock: a lane of which every destination is blocked is looked at each second, and nothing is written.
local takes = #ARGV >= 10
if token ~= '' and takes and not redis.call('SET', LOCK, token, 'NX', 'EX', 2) then
  if redis.call('GET', LOCK) ~= token then
    local left = redis.call('PTTL', LOCK)
    if left >= 0 and left <= 2000 then return { 0, left } end
    -- Longer than any lock lasts: the server's clock was set back since, and a holder that died would be waited for.
    redis.call('SET', LOCK, token, 'EX', 2)
  end
end

sweep(tonumber(ARGV[7]))

local deadline = now + lease_ms
local bytes = 0

-- The bodies of the earliest due tasks, up to `slots` and what is left of the bytes.
local function pick(due, slots)
  local ids, records = {}, {}
  for i = 1, #due, 2 do
    local record = redis.call('HGET', BODIES, due[i])
    if record and bytes > 0 and bytes + #record > max_bytes then break end
    ids[#ids + 1] = due[i]
    records[#records + 1] = record
    bytes = bytes + (record and #record or 0)
  end
  return ids, records
end

-- Those whose records this version can read. The others die: leased, they would come back again and again. They are
-- told all the same, so that whoever claims says so.
local function readable(ids, records, destination, leased)
  local good_ids, good_records = {}, {}
  for i, id in ipairs(ids) do
    if records[i] and destination_of(records[i]) then
      good_ids[#good_ids + 1] = id
      good_records[#good_records + 1] = records[i]
    else
      local raw = redis.call('HGET', ENTRIES, id)
      local entry = raw and read_entry(raw) or fresh_entry(destination)
      bury(id, entry)
      leased[#leased + 1] = id
      leased[#leased + 1] = destination
      leased[#leased + 1] = entry.attempts
      leased[#leased + 1] = records[i]
    end
  end
  return good_ids, good_records
end

-- Writes the leases of up to 500 tasks at once, for unpack is bounded; appends what the holder gets to know.
local function lease(ids, records, destination, first, last, leased)
  local raw = redis.call('HMGET', ENTRIES, unpack(ids, first, last))
  local deadlines, entries = {}, {}
  for i = first, last do
    local entry = raw[i - first + 1] and read_entry(raw[i - first + 1]) or fresh_entry(destination)
    entry.attempts = entry.attempts + 1
    if entry.current ~= '*' or entry.past ~= '*' then
      entry.past = newest(entry.current .. ',' .. entry.past, MAX_RECEIPTS - 1)
    end
    entry.current = receipt
    deadlines[#deadlines + 1] = deadline
    deadlines[#deadlines + 1] = ids[i]
    entries[#entries + 1] = ids[i]
    entries[#entries + 1] = write_entry(entry)
    leased[#leased + 1] = ids[i]
    leased[#leased + 1] = destination
    leased[#leased + 1] = entry.attempts
    leased[#leased + 1] = records[i]
  end
  redis.call('ZADD', LEASED, unpack(deadlines))
  redis.call('HSET', ENTRIES, unpack(entries))
end

local leased, cut = {}, false
for i = 10, #ARGV, 2 do
  local destination, slots = ARGV[i], tonumber(ARGV[i + 1])
  local due = redis.call('ZRANGEBYSCORE', SCHEDULES .. destination, '-inf', now, 'WITHSCORES', 'LIMIT', 0, slots)
  local ids, records = pick(due, slots)
  local taken = #ids
  if taken > 0 then
    ids, records = readable(ids, records, destination, leased)
    for first = 1, #ids, 500 do
      lease(ids, records, destination, first, math.min(first + 499, #ids), leased)
    end
    redis.call('ZREMRANGEBYRANK', SCHEDULES .. destination, 0, taken - 1)
    redis.call('HSET', OFFSETS, destination, due[2 * taken])
  end
  cut = cut or taken == slots or taken < #due / 2
  correct(destination)
end

local due = redis.call('ZRANGEBYSCORE', DESTINATIONS, '-inf', now, 'LIMIT', ARGV[6], ARGV[9])
local later = redis.call('ZRANGEBYSCORE', DESTINATIONS, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local lease_end = redis.call('ZRANGE', LEASED, 0, 0, 'WITHSCORES')
local next_moment = tonumber(later[2] or lease_end[2] or nil)
if next_moment and lease_end[2] then
  next_moment = math.min(next_moment, tonumber(lease_end[2]))
end

if token ~= '' then
  if takes and ARGV[5] == '1' and cut and #due > 0 then
    redis.call('PEXPIRE', LOCK, 2000)
  elseif takes or redis.call('GET', LOCK) == token then
    redis.call('DEL', LOCK)
  end
end
return { 1, now, leased, due, next_moment or '' }
