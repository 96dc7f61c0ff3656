-- Cancels a task.    scheduled | dead -> cancelled;  leased -> leased, cancel pending
--
-- ARGV    2 id
-- returns 'done', 'pending', 'unknown', or the state that refuses it
-- uses: keys, entry, record, entries, schedule, lease, ending, sweep
local id = ARGV[2]
local record = redis.call('HGET', BODIES, id)
if not record then
  return 'unknown'
end
local deadline = deadline_of(id)
if fulfil_pending_cancel(id, deadline) then
  return 'done'
end
local entry = entry_of(id)
  or fresh_entry(destination_of(record) or error('the record of task ' .. id .. ' cannot be read'))
if entry.mark == 'cancelled' then
  return 'done'
elseif entry.mark == 'dead' then
  redis.call('ZREM', ENDED.dead, id)
elseif ENDED[entry.mark] then
  return entry.mark
elseif lease_lasts(deadline) then
  entry.mark = '!'
  keep(id, entry)
  return 'pending'
else
  lift(id, entry.destination)
end
entry.current, entry.past = '*', '*'
finish(id, entry, 'cancelled')
return 'done'
