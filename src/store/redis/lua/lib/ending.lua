-- The ends of tasks. The caller has taken the task off its lease or schedule before.
-- uses: constants, now, keys, entries, expiry, schedule

local function finish(id, entry, state)
  entry.mark, entry.lease = state, '-'
  if state ~= 'dead' then entry.past = '*' end
  redis.call('ZADD', ENDED[state], now, id)
  if has_expiries() then redis.call('ZREM', EXPIRIES, id) end
  keep(id, entry)
end

-- Ends a task as dead. If it asks for a dead-letter call, that is a new task, whose id was drawn
-- together with the task's own: the call is made once, however often the task dies. Returns whether
-- it was made now.
local function die(id, entry)
  -- uses: record
  finish(id, entry, 'dead')
  local record = redis.call('HGET', BODIES, id) or ''
  local _, _, _, options, content_at = read_record(record)
  local call = call_of(options)
  if not call or type(call.sn) ~= 'string' then return false end
  local call_id = string.format('%.0f', call.task_id)
  local topic = string.match(BODIES, '{(.*):%d+}$')
  -- cjson cannot write numbers of 16 digits.
  local content = '{"sn":' .. cjson.encode(call.sn) .. ',"url":' .. cjson.encode(call.url)
    .. ',"task_id":' .. id .. ',"topic":' .. cjson.encode(topic) .. ',"attempts":' .. entry.attempts
    .. ',"outcome":' .. cjson.encode(entry.outcome)
    .. ',"content":' .. cjson.encode(string.sub(record, content_at)) .. '}'
  local call_record = write_record(now, now, call.sn, with_origin('-', origin_of(options)), content)
  if redis.call('HSETNX', BODIES, call_id, call_record) == 0 then return false end
  schedule(call_id, call.sn, now)
  return true
end

-- Ends a task that cannot be read. What is stored of it stays.
local function bury(id, entry)
  entry.outcome = UNREADABLE
  finish(id, entry, 'dead')
end
