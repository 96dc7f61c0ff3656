-- Finds in lanes the task that an id, a key or an idempotency key names. Changes nothing.
--
-- ARGV    2 'id', 'key' or 'idempotency', a space, and the name
-- returns {now, then for each lane the id of the task, or ''}
-- uses: now, lanes, owner, idempotency
local space = string.find(ARGV[2], ' ', 1, true)
local kind, name = string.sub(ARGV[2], 1, space - 1), string.sub(ARGV[2], space + 1)

local function find_in(tag)
  if kind == 'id' then
    return redis.call('HEXISTS', prefix .. 'DELAY_REALL_TOPIC_TASK' .. tag, name) == 1 and name
  end
  if kind == 'key' then
    return (read_owner(redis.call('HGET', prefix .. 'DELAY_KEYS_TOPIC_TASK' .. tag, name)))
  end
  local used = prefix .. 'DELAY_IDEMPOTENCY_TOPIC_TASK' .. tag
  local id, _, till = read_used(redis.call('HGET', used, name))
  return id and tonumber(till) > now and id
end

local answer = { now }
for i = 1, #KEYS do
  answer[i + 1] = find_in(string.sub(KEYS[i], tag_at)) or ''
end
return answer
