-- The end of expired leases, and the return of tasks from a mover.
-- uses: constants, now, keys, entry, record, entries, expiry, schedule, lease, ending

-- Puts a lent task back as it waited before; the caller has removed the lease. Returns what it
-- waits for, or false if it was not lent, or if a pending cancel ends it as any other.
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

-- Ends one expired lease: the task waits again, unless a cancel is pending or it is in a crash
-- loop. A task whose entry cannot be read gets a fresh one, if its record has the destination.
-- Returns whose lease ran out (nil: a mover's, which returns the task), the end of the task, and
-- what a returned task waits for.
local function sweep_one(id, deadline)
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw)
  redis.call('ZREM', LEASED, id)
  if not entry then
    local record = redis.call('HGET', BODIES, id)
    local destination = record and destination_of(record)
    entry = fresh_entry(destination or '-')
    if not destination then
      bury(id, entry)
      return 'push_lease', 'unreadable'
    end
  end
  local due = give_back(id, entry)
  if due then return nil, nil, due end
  local lease = entry.lease == 'c' and 'pull_lease' or 'push_lease'
  entry.expiries = entry.expiries + 1
  entry.outcome = LEASE_RAN_OUT
  if entry.mark == '!' then
    finish(id, entry, 'cancelled')
    return lease, 'cancelled'
  elseif entry.expiries >= MAX_EXPIRIES then
    die(id, entry)
    return lease, 'leases_ran_out'
  else
    schedule(id, entry.destination, math.min(deadline, now))
    turn_expiry(id, 1)
    keep(id, entry)
    return lease
  end
end

-- Cancels the task if its lease has expired while a cancel was pending. For cancel and reschedule:
-- to them, an expired lease does not exist. Returns whether the task is cancelled now.
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
