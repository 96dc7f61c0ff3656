-- Leases waiting tasks, due or not, to a mover; also tasks that another mover has.
-- scheduled | leased -> leased
--
-- ARGV    2 receipt; 3 lease ms; 4.. ids
-- returns for each: 1 if this receipt holds it now, else 0
--
-- A task that a mover has keeps its pending cancel. The kind of its lease has the moment that it
-- waited for, so the task can be put back without other data.
-- uses: constants, now, keys, entry, record, entries, expiry, schedule, lease, sweep
local receipt, deadline = ARGV[2], now + tonumber(ARGV[3])

local function lend(id)
  local record = redis.call('HGET', BODIES, id)
  local held_until = deadline_of(id)
  if not record then return 0 end
  if held_until and not lease_lasts(held_until) then
    sweep_one(id, held_until)
    held_until = nil
  end
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw) or not raw and fresh_entry(destination_of(record))
  if not entry or not entry.destination or ENDED[entry.mark] then return 0 end
  if held_until then
    if not returns_to(entry) then return 0 end
  else
    local due = redis.call('ZSCORE', SCHEDULES .. entry.destination, id)
    if not due then return 0 end
    unschedule(id, entry.destination)
    turn_expiry(id, -1)
    entry.lease = mover_lease(due)
  end
  if entry.current ~= receipt then retire_receipt(entry, MAX_RECEIPTS - 1) end
  entry.current = receipt
  keep(id, entry)
  redis.call('ZADD', LEASED, deadline, id)
  return 1
end

local answer = {}
for i = 4, #ARGV do answer[#answer + 1] = lend(ARGV[i]) end
return answer
