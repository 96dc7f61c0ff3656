-- Sets a scheduled task's due moment, and its content if there is a new one. Begins a new revision:
-- attempts and receipts are forgotten.    scheduled -> scheduled
--
-- ARGV    2 id; 3 "<ms>" (a moment) or "+<ms>" (after now); and, with new content: 4 destination;
--         5 content; 6 'same', if the task may not change between push and pull
-- returns {'done', due ms}, {'unknown'}, {'other mode'}, or {the state that refuses it}
-- uses: now, keys, record, entries, expiry, schedule, lease, sweep
local id, moment = ARGV[2], ARGV[3]
local record = redis.call('HGET', BODIES, id)
if not record then
  return { 'unknown' }
end
local deadline = deadline_of(id)
if fulfil_pending_cancel(id, deadline) then
  return { 'cancelled' }
end
local entry = entry_of(id)
if entry and ENDED[entry.mark] then
  return { entry.mark }
elseif lease_lasts(deadline) then
  return { 'leased' }
end
local ms = tonumber(moment)
local due = string.sub(moment, 1, 1) == '+' and now + ms or math.max(ms, now)
local _, created, destination, options, content_at = read_record(record)
if not created then error('the record of task ' .. id .. ' cannot be read') end
if ARGV[6] == 'same' and (ARGV[4] == '@pull') ~= (destination == '@pull') then
  return { 'other mode' }
end
lift(id, destination)
redis.call('HDEL', ENTRIES, id)
destination = ARGV[4] or destination
record = write_record(due, created, destination, options, ARGV[5] or string.sub(record, content_at))
redis.call('HSET', BODIES, id, record)
schedule(id, destination, due)
set_expiry(id, due, expires_after(options))
return { 'done', due }
