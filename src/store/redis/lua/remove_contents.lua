-- Removes the contents of tasks that were delivered, cancelled or expired. Digests of the contents
-- stay. Other tasks keep theirs.
--
-- ARGV    2 most bytes of records (a larger one alone is possible); 3.. ids
-- returns how many of the ids it has looked at
-- uses: keys, entry, record
local KEPT = { ['-'] = true, ['!'] = true, dead = true }
local most, bytes, count = tonumber(ARGV[2]), 0, 0
for i = 3, #ARGV do
  if count > 0 and bytes >= most then break end
  count = count + 1
  local raw = redis.call('HGET', ENTRIES, ARGV[i])
  local entry = raw and read_entry(raw)
  local record = entry and not KEPT[entry.mark] and redis.call('HGET', BODIES, ARGV[i])
  local emptied = record and without_content(record)
  if emptied then redis.call('HSET', BODIES, ARGV[i], emptied) end
  bytes = bytes + (record and #record or 0)
end
return count
