-- The codec of an entry: the progress of a task, from its first claim or its end. No other file
-- splits or joins this text.
--
--   "<attempts> <expiries> <mark> <lease> <current> <past> <destination> <outcome>"
--
--   attempts     claims of this revision
--   expiries     leases in a row that expired
--   mark         - (waiting or leased), ! (cancel pending), or the final state
--   lease        the holder: w (a worker), c (a consumer), r (a receiver that acknowledges later),
--                m<ms> (a mover; the moment that the task waits for if it returns), or - (none).
--                Kept when the lease is swept
--   current      the receipt of the last claim, or * if there is none
--   past         earlier receipts of this revision, newest first, separated by commas, or *
--   destination  where it waits between attempts
--   outcome      of the last attempt, the rest of the text

-- The entry of a task that was never claimed.
local function fresh_entry(destination)
  return {
    attempts = 0, expiries = 0, mark = '-', lease = '-', current = '*', past = '*',
    destination = destination, outcome = '',
  }
end

-- nil for a text that no script wrote. A script about several tasks then continues: an error would
-- end it half way.
local function read_entry(raw)
  local attempts, expiries, mark, lease, current, past, destination, outcome =
    string.match(raw, '^(%d+) (%d+) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  if not attempts then return nil end
  return {
    attempts = tonumber(attempts), expiries = tonumber(expiries), mark = mark, lease = lease,
    current = current, past = past, destination = destination, outcome = outcome,
  }
end

local function write_entry(entry)
  return table.concat({
    entry.attempts, entry.expiries, entry.mark, entry.lease, entry.current, entry.past,
    entry.destination, entry.outcome,
  }, ' ')
end

-- The new entry when its holder has delivered the task, its previous mark, and its destination; nil
-- if the receipt is not the current one, or as read_entry.
local function deliver(raw, receipt, outcome)
  local attempts, mark, current, destination =
    string.match(raw, '^(%d+) %d+ (%S+) %S+ (%S+) %S+ (%S+) ')
  if current ~= receipt then return nil end
  return attempts .. ' 0 delivered - ' .. current .. ' * ' .. destination .. ' ' .. outcome,
    mark, destination
end

-- Makes the current receipt a past one, and keeps the newest `most` of these.
local function retire_receipt(entry, most)
  local kept = {}
  for receipt in string.gmatch(entry.current .. ',' .. entry.past, '[^,*]+') do
    if #kept == most then break end
    kept[#kept + 1] = receipt
  end
  entry.current, entry.past = '*', kept[1] and table.concat(kept, ',') or '*'
end

-- The newest of the past receipts; nil if there is none.
local function last_retired(entry)
  return string.match(entry.past, '^[^,*]+')
end

-- Whether a claim of this revision had the receipt.
local function knows(entry, receipt)
  if entry.current == receipt then return true end
  return string.find(',' .. entry.past .. ',', ',' .. receipt .. ',', 1, true) ~= nil
end

-- The lease of a mover that holds a task which waited for `due`.
local function mover_lease(due)
  return 'm' .. string.format('%.0f', due)
end

-- The moment that a mover's task waits for if it returns; nil if no mover has it.
local function returns_to(entry)
  return tonumber(string.match(entry.lease, '^m(%d+)$'))
end

local function has_known_lease(entry)
  return string.match(entry.lease, '^[-wcr]$') ~= nil or returns_to(entry) ~= nil
end
