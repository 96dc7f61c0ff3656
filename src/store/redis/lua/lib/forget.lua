-- Forgetting, which purge, discard and clear share. A key has to be read from its task's record, so that a call looks at no more than 4 MiB of
-- them; where no task has a key, none is read. `forget` returns how many it came to.
local MAX_BYTES = 4194304
local read_bytes = 0

-- Takes its key from a task, unless it has gone to another.
local function release_key(id)
  local record = redis.call('HGET', BODIES, id)
  local key = record and key_of(record)
  local owner = key and redis.call('HGET', OWNERS, key)
  if owner and string.match(owner, '^%d+') == id then redis.call('HDEL', OWNERS, key) end
  read_bytes = read_bytes + (record and #record or 0)
end

-- Forgets the first of these tasks (up to 1,000), bodies, keys and notes and all, but not where they stand. Answers how many it could.
local function forget(ids)
  local count = #ids
  if count == 0 then return 0 end
  if redis.call('EXISTS', OWNERS) == 1 then
    count = 0
    while count < #ids and (read_bytes < MAX_BYTES or count == 0) do
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
