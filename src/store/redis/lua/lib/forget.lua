-- Deletes all that is stored of tasks. A task's key has to be read from its record, so a call reads
-- at most 4 MiB of records; if no task has a key, it reads none.
-- uses: keys, record, owner, expiry
local MAX_BYTES = 4194304

local bytes_read = 0

-- Releases the key of a task, unless the key names another task.
local function release_key(id)
  local record = redis.call('HGET', BODIES, id)
  local key = record and key_of(record)
  local owner = key and redis.call('HGET', OWNERS, key)
  if owner and read_owner(owner) == id then redis.call('HDEL', OWNERS, key) end
  bytes_read = bytes_read + (record and #record or 0)
end

-- Removes the first of these tasks (up to 1,000): records, keys and notes, but not the sets that
-- name them. Returns how many.
local function forget(ids)
  local count = #ids
  if count == 0 then return 0 end
  if redis.call('EXISTS', OWNERS) == 1 then
    count = 0
    while count < #ids and (bytes_read < MAX_BYTES or count == 0) do
      count = count + 1
      release_key(ids[count])
    end
  end
  for _, key in ipairs({ BODIES, ENTRIES, NOTES }) do
    redis.call('HDEL', key, unpack(ids, 1, count))
  end
  if has_expiries() then redis.call('ZREM', EXPIRIES, unpack(ids, 1, count)) end
  return count
end
