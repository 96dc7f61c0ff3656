-- Schedules dead tasks for now. Raises the revision: attempts and receipts are forgotten.    dead -> scheduled
--
-- ARGV    2.. ids
-- returns how many of them were dead
local count = 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local record = redis.call('HGET', BODIES, id)
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw)
  local destination = entry and entry.destination or record and destination_of(record)
  -- Without a body it stays dead.
  if record and destination and redis.call('ZREM', ENDED.dead, id) == 1 then
    redis.call('HDEL', ENTRIES, id)
    schedule(id, destination, now)
    count = count + 1
  end
end
return count
