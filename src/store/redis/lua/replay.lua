-- Schedules dead tasks for now. Raises the revision: attempts and receipts are forgotten.    dead -> scheduled
--
-- ARGV    2.. ids
-- returns how many of them were dead
local count = 0
for i = 2, #ARGV do
  local id = ARGV[i]
  if redis.call('ZREM', ENDED.dead, id) == 1 then
    local entry = entry_of(id)
    redis.call('HDEL', ENTRIES, id)
    schedule(id, entry.destination, now)
    count = count + 1
  end
end
return count
