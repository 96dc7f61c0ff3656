-- The stored entries of a lane's tasks.
-- uses: keys, entry

-- For a script about one task: nil if it has no entry yet, and an error if the entry cannot be
-- read.
local function entry_of(id)
  local raw = redis.call('HGET', ENTRIES, id)
  if not raw then return nil end
  return read_entry(raw) or error('the entry of task ' .. id .. ' cannot be read')
end

-- For a script about several tasks: an entry that cannot be read is replaced by a fresh one.
local function entry_or_fresh(id, destination)
  local raw = redis.call('HGET', ENTRIES, id)
  return raw and read_entry(raw) or fresh_entry(destination)
end

local function keep(id, entry)
  redis.call('HSET', ENTRIES, id, write_entry(entry))
end
