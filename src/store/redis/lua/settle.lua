-- Ends leases, or extends them.    leased -> delivered | scheduled | dead | cancelled | leased
-- (docs/STORE.md has the table)
--
-- ARGV    for each settle: id, receipt, 'delivered' | 'moved' | 'retry' | 'dead' | 'release' |
--         'keep', wait ms or '@' and the due moment (retry), or lease ms (keep), outcome
-- returns for each settle: 'done'; 'call <ms>' or 'pull <ms>' (done, and a task of the lane is to
--         be called, or pulled, from then on: this one, or the dead-letter call); 'done
--         cancelled' (a cancel was pending); 'unknown' (or unreadable); or the state that makes it
--         stale
-- uses: now, keys, entry, expiry
-- The common case, for all such settles of the call together: the holder delivered (or moved) the
-- task, which has not ended. Each is done as settle_held would do it. Of several settles of one
-- task only the first may be among them, and the others see its effect.
local ids = {}
for i = 2, #ARGV, 5 do ids[#ids + 1] = ARGV[i] end
local raw = redis.call('HMGET', ENTRIES, unpack(ids))
local now_text = string.format('%d', now)
local answer, seen = {}, {}
local count, done, destinations, entries, ends = 0, {}, {}, {}, {}
for n, id in ipairs(ids) do
  local i = 5 * n - 3
  local verb = ARGV[i + 2]
  if not seen[id] and raw[n] and (verb == 'delivered' or verb == 'moved') then
    local entry, mark, destination = deliver(raw[n], ARGV[i + 1], ARGV[i + 4])
    if entry and not ENDED[mark] and not (verb == 'moved' and mark == '!') then
      count = count + 1
      done[count], destinations[count] = id, destination
      entries[2 * count - 1], entries[2 * count] = id, entry
      ends[2 * count - 1], ends[2 * count] = now_text, id
      answer[n] = 'done'
    end
  end
  seen[id] = true
end
if count > 0 then
  if redis.call('ZREM', LEASED, unpack(done)) < count then
    -- uses: schedule
    -- Some of the leases had expired and were swept: these tasks wait.
    local by_destination = {}
    for n, destination in ipairs(destinations) do
      by_destination[destination] = by_destination[destination] or {}
      table.insert(by_destination[destination], done[n])
    end
    for destination, theirs in pairs(by_destination) do
      redis.call('ZREM', SCHEDULES .. destination, unpack(theirs))
      correct(destination)
    end
  end
  redis.call('ZADD', ENDED.delivered, unpack(ends))
  if has_expiries() then redis.call('ZREM', EXPIRIES, unpack(done)) end
  redis.call('HSET', ENTRIES, unpack(entries))
end
if count == #ids then return answer end

-- All other settles, one after the other.
-- uses: constants, entry, entries, expiry, schedule, lease, ending, sweep
local function settle_ended(id, entry, receipt, verb, outcome)
  if entry.mark == 'dead' and verb == 'delivered' and knows(entry, receipt) then
    redis.call('ZREM', ENDED.dead, id)
    entry.current, entry.outcome = receipt, outcome
    finish(id, entry, 'delivered')
    return 'done'
  end
  local ended_by = {
    delivered = entry.mark == 'delivered',
    dead = entry.mark == 'dead' or entry.mark == 'cancelled',
    retry = entry.mark == 'cancelled',
    release = entry.mark == 'cancelled',
  }
  return entry.current == receipt and ended_by[verb] and 'done' or entry.mark
end

-- The answer if a task of the destination waits for that moment now.
local function done_and_due(destination, due)
  return (destination == '@pull' and 'pull ' or 'call ') .. string.format('%d', due)
end

local function settle_held(id, entry, receipt, verb, wait_ms, outcome)
  lift(id, entry.destination)
  entry.expiries = 0
  local back = verb == 'release' and give_back(id, entry)
  if back then return done_and_due(entry.destination, back) end
  if verb ~= 'release' then entry.outcome = outcome end
  if verb == 'delivered' then
    entry.current = receipt
    finish(id, entry, 'delivered')
  elseif entry.mark == '!' then
    finish(id, entry, 'cancelled')
    return 'done cancelled'
  elseif verb == 'dead' then
    return die(id, entry) and done_and_due(nil, now) or 'done'
  else
    if verb == 'release' then
      entry.attempts = entry.attempts - 1
      wait_ms = 0
    else
      retire_receipt(entry, MAX_RECEIPTS)
    end
    entry.current, entry.lease = '*', '-'
    keep(id, entry)
    schedule(id, entry.destination, now + wait_ms)
    turn_expiry(id, 1)
    return done_and_due(entry.destination, now + wait_ms)
  end
  return 'done'
end

-- As extend.lua does.
local function keep_lease(id, entry, lease_ms, outcome)
  if not deadline_of(id) then
    unschedule(id, entry.destination)
    turn_expiry(id, -1)
  end
  if not returns_to(entry) then entry.lease, entry.outcome = 'r', outcome end
  keep(id, entry)
  redis.call('ZADD', LEASED, now + lease_ms, id)
  return 'done'
end

local function settle(id, receipt, verb, wait_ms, outcome)
  local raw = redis.call('HGET', ENTRIES, id)
  if not raw then
    return redis.call('HEXISTS', BODIES, id) == 1 and 'scheduled' or 'unknown'
  end
  local entry = read_entry(raw)
  if not entry then return 'unknown' end
  if verb == 'moved' then
    if entry.mark == '!' then return live_state(deadline_of(id)) end
    verb = 'delivered'
  end
  if ENDED[entry.mark] then
    return settle_ended(id, entry, receipt, verb, outcome)
  end
  if verb == 'keep' then
    return entry.current == receipt and keep_lease(id, entry, wait_ms, outcome)
      or live_state(deadline_of(id))
  end
  if entry.current == receipt or (verb == 'delivered' and knows(entry, receipt)) then
    return settle_held(id, entry, receipt, verb, wait_ms, outcome)
  end
  local is_repeat = verb == 'retry' and entry.current == '*' and last_retired(entry) == receipt
  return is_repeat and 'done' or live_state(deadline_of(id))
end

for n, id in ipairs(ids) do
  local i = 5 * n - 3
  local wait = ARGV[i + 3]
  local wait_ms = tonumber(wait) or math.max(tonumber(string.sub(wait, 2)) - now, 0)
  answer[n] = answer[n] or settle(id, ARGV[i + 1], ARGV[i + 2], wait_ms, ARGV[i + 4])
end
return answer
