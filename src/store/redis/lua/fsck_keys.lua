-- Checks that each key names a task that was added with it, that the answer of each idempotency key
-- can be read, and that the end of its window is listed.
--
-- ARGV    2 'keys' | 'used' | 'windows'; the others in lib/check.lua
-- returns see lib/check.lua
-- uses: keys, record, owner, idempotency, check

-- Checks that a key names a task that was added with it.
local function judge_key(key, raw)
  local owner = read_owner(raw)
  local record = owner and redis.call('HGET', BODIES, owner)
  if record and (key_of(record) == key or not read_head(record)) then return end
  if find('key-without-task', key) then redis.call('HDEL', OWNERS, key) end
end

local function judge_used(key, raw)
  local _, _, text = read_used(raw)
  local till = tonumber(text)
  if not till then
    if find('unreadable-key', key) then
      set_aside(key, raw)
      redis.call('HDEL', USED, key)
      redis.call('ZREM', WINDOWS, key)
    end
  else
    local noted = tonumber(redis.call('ZSCORE', WINDOWS, key) or nil)
    if noted ~= till and find('window-wrong', key) then redis.call('ZADD', WINDOWS, till, key) end
  end
end

local function judge_window(key)
  if redis.call('HEXISTS', USED, key) == 0 and find('window-wrong', key) then
    redis.call('ZREM', WINDOWS, key)
  end
end

if structure == 'keys' then
  walk_names('HSCAN', OWNERS, judge_key)
elseif structure == 'used' then
  walk_names('HSCAN', USED, judge_used)
else
  walk_names('ZSCAN', WINDOWS, judge_window)
end
return { page_cursor, 0, '', findings, {}, '' }
