-- The end of leases that have run out, and of tasks that come back from a mover.
-- uses: now, keys, entry, record, entries, expiry, schedule, lease, ending
local MAX_EXPIRIES = 16

local LEASE_RAN_OUT = 'lease ran out'

-- Puts a task that was lent to another store back as it waited before; the lease has been taken
-- off. Answers what it waits for, or false: it was not lent, or a cancel is pending, which ends it
-- as it ends any other.
local function give_back(id, entry)
  local due = returns_to(entry)
  if not due or entry.mark == '!' then return false end
  entry.lease = '-'
  retire_receipt(entry, MAX_RECEIPTS)
  keep(id, entry)
  schedule(id, entry.destination, due)
  turn_expiry(id, 1)
  return due
end

-- Ends one lease that has run out: the task waits again, unless a cancel is pending or it is a
-- crash loop. A task whose entry cannot be read begins anew, if its record says where.
local function sweep_one(id, deadline)
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw)
  redis.call('ZREM', LEASED, id)
  if not entry then
    local record = redis.call('HGET', BODIES, id)
    local destination = record and destination_of(record)
    entry = fresh_entry(destination or '-')
    if not destination then return bury(id, entry) end
  end
  if give_back(id, entry) then return end
  entry.expiries = entry.expiries + 1
  entry.outcome = LEASE_RAN_OUT
  if entry.mark == '!' then
    finish(id, entry, 'cancelled')
  elseif entry.expiries >= MAX_EXPIRIES then
    die(id, entry)
  else
    schedule(id, entry.destination, math.min(deadline, now))
    turn_expiry(id, 1)
    keep(id, entry)
  end
end

-- The end that a cancel waits for, if the lease has run out. For scripts that act by hand: to them,
-- such a lease is none. Answers whether the task is cancelled now.
local function fulfil_pending_cancel(id, deadline)
  local entry = deadline and not lease_lasts(deadline) and entry_of(id)
  if not entry or entry.mark ~= '!' then return false end
  sweep_one(id, deadline)
  return true
end

-- 'scheduled' or 'leased', and the entry, of a task that has not ended; nil for others, and if the
-- entry cannot be read.
local function standing(id)
  local raw = redis.call('HGET', ENTRIES, id)
  local entry, deadline = raw and read_entry(raw), deadline_of(id)
  if raw and (not entry or ENDED[entry.mark]) then return nil end
  if entry and entry.mark == '!' and deadline and not lease_lasts(deadline) then
    sweep_one(id, deadline)
    return nil
  end
  return live_state(deadline), entry
end
