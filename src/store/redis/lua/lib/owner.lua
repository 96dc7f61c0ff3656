-- The codec of an owner: the task that a key names. No other file splits or joins this text.
--
--   "<id of the owner> <id drawn by the add that last set it> <ms at which it did>"
-- uses: keys

-- The three fields as text; nil if there is no owner.
local function read_owner(raw)
  return string.match(raw or '', '^(%d+) (%d+) (%d+)$')
end

-- Makes the key name a task, which the add with the drawn id `by` has set at that moment.
local function own_key(key, owner, by, set)
  redis.call('HSET', OWNERS, key, owner .. ' ' .. by .. ' ' .. set)
end
