#!lua flags=allow-oom
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local ENTRIES = KEYS[5]
local LEASED = KEYS[6]
local ENDED = { delivered = KEYS[8], dead = KEYS[9], cancelled = KEYS[10], expired = KEYS[11] }
local EXPIRIES = KEYS[12]
local function deliver(raw, receipt, outcome)
  local attempts, mark, current, destination =
    string.match(raw, '^(%d+) %d+ (%S+) %S+ (%S+) %S+ (%S+) ')
  if current ~= receipt then return nil end
  return attempts .. ' 0 delivered - ' .. current .. ' * ' .. destination .. ' ' .. outcome,
    mark, destination
end
local some_expire
local function has_expiries()
  if some_expire == nil then some_expire = redis.call('EXISTS', EXPIRIES) == 1 end
  return some_expire
end
local ids = {}
for i = 2, #ARGV, 5 do ids[#ids + 1] = ARGV[i] end
local raw = redis.call('HMGET', ENTRIES, unpack(ids))
local now_text = string.format('%d', now)
local answer, seen = {}, {}
local count, done, destinations, entries, ends = 0, {}, {}, {}, {}
for n, id in ipairs(ids) do
  local i = 5 * n - 3
  local verb = ARGV[i + 2]
  if not seen[id] and raw[n] and (verb == 'delivered' or verb == 'moved') then
    local entry, mark, destination = deliver(raw[n], ARGV[i + 1], ARGV[i + 4])
    if entry and not ENDED[mark] and not (verb == 'moved' and mark == '!') then
      count = count + 1
      done[count], destinations[count] = id, destination
      entries[2 * count - 1], entries[2 * count] = id, entry
      ends[2 * count - 1], ends[2 * count] = now_text, id
      answer[n] = 'done'
    end
  end
  seen[id] = true
end
if count > 0 then
  if redis.call('ZREM', LEASED, unpack(done)) < count then
    local OFFSETS = KEYS[2]
    local DESTINATIONS = KEYS[3]
    local SCHEDULES = KEYS[4]
    local function correct(destination)
      if destination == '@pull' then return true end
      local head = redis.call('ZRANGE', SCHEDULES .. destination, 0, 0, 'WITHSCORES')
      if head[2] then
        redis.call('ZADD', DESTINATIONS, head[2], destination)
        return true
      end
      redis.call('ZREM', DESTINATIONS, destination)
      redis.call('HDEL', OFFSETS, destination)
      return false
    end
    local by_destination = {}
    for n, destination in ipairs(destinations) do
      by_destination[destination] = by_destination[destination] or {}
      table.insert(by_destination[destination], done[n])
    end
    for destination, theirs in pairs(by_destination) do
      redis.call('ZREM', SCHEDULES .. destination, unpack(theirs))
      correct(destination)
    end
  end
  redis.call('ZADD', ENDED.delivered, unpack(ends))
  if has_expiries() then redis.call('ZREM', EXPIRIES, unpack(done)) end
  redis.call('HSET', ENTRIES, unpack(entries))
end
if count == #ids then return answer end
local BODIES = KEYS[1]
local OFFSETS = KEYS[2]
local DESTINATIONS = KEYS[3]
local SCHEDULES = KEYS[4]
local MAX_RECEIPTS = 4
local function read_entry(raw)
  local attempts, expiries, mark, lease, current, past, destination, outcome =
    string.match(raw, '^(%d+) (%d+) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  if not attempts then return nil end
  return {
    attempts = tonumber(attempts), expiries = tonumber(expiries), mark = mark, lease = lease,
    current = current, past = past, destination = destination, outcome = outcome,
  }
end
local function write_entry(entry)
  return table.concat({
    entry.attempts, entry.expiries, entry.mark, entry.lease, entry.current, entry.past,
    entry.destination, entry.outcome,
  }, ' ')
end
local function retire_receipt(entry, most)
  local kept = {}
  for receipt in string.gmatch(entry.current .. ',' .. entry.past, '[^,*]+') do
    if #kept == most then break end
    kept[#kept + 1] = receipt
  end
  entry.current, entry.past = '*', kept[1] and table.concat(kept, ',') or '*'
end
local function last_retired(entry)
  return string.match(entry.past, '^[^,*]+')
end
local function knows(entry, receipt)
  if entry.current == receipt then return true end
  return string.find(',' .. entry.past .. ',', ',' .. receipt .. ',', 1, true) ~= nil
end
local function returns_to(entry)
  return tonumber(string.match(entry.lease, '^m(%d+)$'))
end
local function keep(id, entry)
  redis.call('HSET', ENTRIES, id, write_entry(entry))
end
local function turn_expiry(id, sign)
  local expires = has_expiries() and redis.call('ZSCORE', EXPIRIES, id)
  if expires then redis.call('ZADD', EXPIRIES, sign * math.abs(tonumber(expires)), id) end
end
local function correct(destination)
  if destination == '@pull' then return true end
  local head = redis.call('ZRANGE', SCHEDULES .. destination, 0, 0, 'WITHSCORES')
  if head[2] then
    redis.call('ZADD', DESTINATIONS, head[2], destination)
    return true
  end
  redis.call('ZREM', DESTINATIONS, destination)
  redis.call('HDEL', OFFSETS, destination)
  return false
end
local function schedule(id, destination, due)
  redis.call('ZADD', SCHEDULES .. destination, due, id)
  if destination ~= '@pull' then
    redis.call('ZADD', DESTINATIONS, 'LT', due, destination)
  end
end
local function unschedule(id, destination)
  redis.call('ZREM', SCHEDULES .. destination, id)
  correct(destination)
end
local function lift(id, destination)
  if redis.call('ZREM', LEASED, id) == 0 then
    unschedule(id, destination)
  end
end
local FURTHEST_DEADLINE_MS = 46800000
local function lease_lasts(deadline)
  return deadline ~= nil and deadline > now and deadline <= now + FURTHEST_DEADLINE_MS
end
local function deadline_of(id)
  return tonumber(redis.call('ZSCORE', LEASED, id) or nil)
end
local function live_state(deadline)
  return lease_lasts(deadline) and 'leased' or 'scheduled'
end
local function finish(id, entry, state)
  entry.mark, entry.lease = state, '-'
  if state ~= 'dead' then entry.past = '*' end
  redis.call('ZADD', ENDED[state], now, id)
  if has_expiries() then redis.call('ZREM', EXPIRIES, id) end
  keep(id, entry)
end
local function die(id, entry)
  local function write_record(due, created, destination, options, content)
    local tail = destination .. ' ' .. options .. '\n' .. content
    return '1 ' .. due .. ' ' .. created .. ' ' .. tail, tail
  end
  local function read_record(record)
    return string.match(record, '^1 (%d+) (%d+) (%S+) ([^\n]*)\n()')
  end
  local function read_options(options)
    if not options or options == '-' then return nil end
    local is_json, asked = pcall(cjson.decode, options)
    return is_json and type(asked) == 'table' and asked or nil
  end
  local function origin_of(options)
    return options and string.match(options, '^{"origin":"(%x+)"')
  end
  local function with_origin(options, origin)
    if not origin then return options end
    local field = '{"origin":"' .. origin .. '"'
    return options == '-' and field .. '}' or field .. ',' .. string.sub(options, 2)
  end
  local function call_of(options)
    local asked = read_options(options)
    local call = asked and asked.on_dead
    return type(call) == 'table' and type(call.task_id) == 'number' and call or nil
  end
  finish(id, entry, 'dead')
  local record = redis.call('HGET', BODIES, id) or ''
  local _, _, _, options, content_at = read_record(record)
  local call = call_of(options)
  if not call or type(call.sn) ~= 'string' then return false end
  local call_id = string.format('%.0f', call.task_id)
  local topic = string.match(BODIES, '{(.*):%d+}$')
  local content = '{"sn":' .. cjson.encode(call.sn) .. ',"url":' .. cjson.encode(call.url)
    .. ',"task_id":' .. id .. ',"topic":' .. cjson.encode(topic) .. ',"attempts":' .. entry.attempts
    .. ',"outcome":' .. cjson.encode(entry.outcome)
    .. ',"content":' .. cjson.encode(string.sub(record, content_at)) .. '}'
  local call_record = write_record(now, now, call.sn, with_origin('-', origin_of(options)), content)
  if redis.call('HSETNX', BODIES, call_id, call_record) == 0 then return false end
  schedule(call_id, call.sn, now)
  return true
end
local function give_back(id, entry)
  local due = returns_to(entry)
  if not due or entry.mark == '!' then return false end
  entry.lease = '-'
  retire_receipt(entry, MAX_RECEIPTS)
  keep(id, entry)
  schedule(id, entry.destination, due)
  turn_expiry(id, 1)
  return due
end
local function settle_ended(id, entry, receipt, verb, outcome)
  if entry.mark == 'dead' and verb == 'delivered' and knows(entry, receipt) then
    redis.call('ZREM', ENDED.dead, id)
    entry.current, entry.outcome = receipt, outcome
    finish(id, entry, 'delivered')
    return 'done'
  end
  local ended_by = {
    delivered = entry.mark == 'delivered',
    dead = entry.mark == 'dead' or entry.mark == 'cancelled',
    retry = entry.mark == 'cancelled',
    release = entry.mark == 'cancelled',
  }
  return entry.current == receipt and ended_by[verb] and 'done' or entry.mark
end
local function done_and_due(destination, due)
  return (destination == '@pull' and 'pull ' or 'call ') .. string.format('%d', due)
end
local function settle_held(id, entry, receipt, verb, wait_ms, outcome)
  lift(id, entry.destination)
  entry.expiries = 0
  local back = verb == 'release' and give_back(id, entry)
  if back then return done_and_due(entry.destination, back) end
  if verb ~= 'release' then entry.outcome = outcome end
  if verb == 'delivered' then
    entry.current = receipt
    finish(id, entry, 'delivered')
  elseif entry.mark == '!' then
    finish(id, entry, 'cancelled')
    return 'done cancelled'
  elseif verb == 'dead' then
    return die(id, entry) and done_and_due(nil, now) or 'done'
  else
    if verb == 'release' then
      entry.attempts = entry.attempts - 1
      wait_ms = 0
    else
      retire_receipt(entry, MAX_RECEIPTS)
    end
    entry.current, entry.lease = '*', '-'
    keep(id, entry)
    schedule(id, entry.destination, now + wait_ms)
    turn_expiry(id, 1)
    return done_and_due(entry.destination, now + wait_ms)
  end
  return 'done'
end
local function keep_lease(id, entry, lease_ms, outcome)
  if not deadline_of(id) then
    unschedule(id, entry.destination)
    turn_expiry(id, -1)
  end
  if not returns_to(entry) then entry.lease, entry.outcome = 'r', outcome end
  keep(id, entry)
  redis.call('ZADD', LEASED, now + lease_ms, id)
  return 'done'
end
local function settle(id, receipt, verb, wait_ms, outcome)
  local raw = redis.call('HGET', ENTRIES, id)
  if not raw then
    return redis.call('HEXISTS', BODIES, id) == 1 and 'scheduled' or 'unknown'
  end
  local entry = read_entry(raw)
  if not entry then return 'unknown' end
  if verb == 'moved' then
    if entry.mark == '!' then return live_state(deadline_of(id)) end
    verb = 'delivered'
  end
  if ENDED[entry.mark] then
    return settle_ended(id, entry, receipt, verb, outcome)
  end
  if verb == 'keep' then
    return entry.current == receipt and keep_lease(id, entry, wait_ms, outcome)
      or live_state(deadline_of(id))
  end
  if entry.current == receipt or (verb == 'delivered' and knows(entry, receipt)) then
    return settle_held(id, entry, receipt, verb, wait_ms, outcome)
  end
  local is_repeat = verb == 'retry' and entry.current == '*' and last_retired(entry) == receipt
  return is_repeat and 'done' or live_state(deadline_of(id))
end
for n, id in ipairs(ids) do
  local i = 5 * n - 3
  local wait = ARGV[i + 3]
  local wait_ms = tonumber(wait) or math.max(tonumber(string.sub(wait, 2)) - now, 0)
  answer[n] = answer[n] or settle(id, ARGV[i + 1], ARGV[i + 2], wait_ms, ARGV[i + 4])
end
return answer
