-- Schedules dead tasks, one after another, as if they had been added for those moments. Begins a
-- new revision: attempts and receipts are forgotten.    dead -> scheduled
--
-- ARGV    2 ms from now to the first one's moment; 3 ms between two; 4 '' or '=' and the last
--         outcome of those to be replayed; 5.. ids
-- returns how many of them were replayed, and the first one's moment
-- uses: now, keys, entry, record, expiry, schedule
local first, step = tonumber(ARGV[2]), tonumber(ARGV[3])
local count = 0
for i = 5, #ARGV do
  local id = ARGV[i]
  local record = redis.call('HGET', BODIES, id)
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw)
  local destination = entry and entry.destination or record and destination_of(record)
  local is_meant = ARGV[4] == '' or ARGV[4] == '=' .. (entry and entry.outcome or '')
  -- Without a record it stays dead.
  if record and destination and is_meant and redis.call('ZREM', ENDED.dead, id) == 1 then
    redis.call('HDEL', ENTRIES, id)
    local due = now + first + count * step
    schedule(id, destination, due)
    local _, _, _, options = read_record(record)
    if options then
      redis.call('HSET', BODIES, id, with_due(record, due))
      set_expiry(id, due, expires_after(options))
    end
    count = count + 1
  end
end
return { count, now + first }
