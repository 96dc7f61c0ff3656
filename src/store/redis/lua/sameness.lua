-- Storing a task, unless it is one that was added before. The order of the looks stands in store/mod.rs ("Sameness").
--
-- What may be asked of a task is JSON: {"key", "expires_after": ms, "on_dead": the drawn id that the options name, "quota",
-- "idempotency": {"key", "fingerprint", "window": ms}}; that key is the name under which the lane
-- remembers it (terms/identity.rs).
-- An add that is repeated after a lost reply brings the same drawn id. It finds that with the idempotency key, else as a task's, else with the
-- key, and answers what it did; another add of that key between the two is the one case in which it is done again. Each function returns what
-- add_with_options.lua answers for the task, unless it says otherwise.
local TAKEN, OVER_QUOTA, KEY_REUSED = -1, -2, -3

-- The earliest moment that this call stored for each destination, and the destinations that it took a task from.
local earliest, left = {}, {}

-- Answers the due moment, or that the id is another task's.
local function store(id, due, destination, tail)
  if redis.call('HSETNX', BODIES, id, '1 ' .. due .. ' ' .. now .. ' ' .. tail) == 1 then
    redis.call('ZADD', SCHEDULES .. destination, due, id)
    if due < (earliest[destination] or math.huge) then earliest[destination] = due end
    return due
  end
  local stored_due, _, stored_tail = string.match(redis.call('HGET', BODIES, id), '^1 (%d+) (%d+) (.*)$')
  return stored_tail == tail and tonumber(stored_due) or TAKEN
end

-- The key goes to a task, which the add of the drawn id `by` has set at that moment.
local function own_key(key, owner, by, set)
  redis.call('HSET', OWNERS, key, owner .. ' ' .. by .. ' ' .. set)
end

local function due_of(record)
  return tonumber((string.match(record, '^1 (%d+) ')))
end

-- The first add under an idempotency key whose window is not over.
local function used_before(same)
  local raw = same and redis.call('HGET', USED, same.key)
  local id, fingerprint, till, due, by = string.match(raw or '', '^(%d+) (%x+) (%d+) (%d+) (%d+)$')
  if not id or now >= tonumber(till) then return nil end
  return { id = id, fingerprint = fingerprint, due = tonumber(due), by = by }
end

-- Two that are over go for each that comes: they cannot pile up between the rounds that purge.
local function remember(same, id, due, by)
  if not same then return end
  local over = redis.call('ZRANGEBYSCORE', WINDOWS, '-inf', now, 'LIMIT', 0, 2)
  if #over > 0 then
    redis.call('HDEL', USED, unpack(over))
    redis.call('ZREM', WINDOWS, unpack(over))
  end
  local till = math.min(now + same.window, FARTHEST)
  redis.call('HSET', USED, same.key, string.format('%s %s %.0f %.0f %s', id, same.fingerprint, till, due, by))
  redis.call('ZADD', WINDOWS, till, same.key)
end

-- 'scheduled' or 'leased', and the entry, of a task that has not ended. One whose entry cannot be read is left alone.
local function standing(id)
  local raw = redis.call('HGET', ENTRIES, id)
  local entry, deadline = raw and read_entry(raw), deadline_of(id)
  if raw and (not entry or ENDED[entry.mark]) then return nil end
  if entry and entry.mark == '!' and deadline and not lease_lasts(deadline) then
    sweep_one(id, deadline)
    return nil
  end
  return live_state(deadline), entry
end

-- The state of a task, as callers see it; '' if it is forgotten or cannot be read.
local function state_of(id)
  if redis.call('HEXISTS', BODIES, id) == 0 then return '' end
  local state = standing(id)
  if state then return state end
  local entry = read_entry(redis.call('HGET', ENTRIES, id) or '')
  return entry and ENDED[entry.mark] and entry.mark or ''
end

local function pending()
  local count = redis.call('HLEN', BODIES)
  for _, ended in pairs(ENDED) do count = count - redis.call('ZCARD', ended) end
  return count
end

-- The id that was drawn for the first version's call stays the task's.
local function with_first_call(options, drawn, before)
  local asked = drawn and read_options(before)
  local call = asked and asked.on_dead
  if type(call) ~= 'table' or type(call.task_id) ~= 'number' then return options end
  local field = '"task_id":'
  local first, last = string.find(options, field .. drawn, 1, true)
  if not first then return options end
  return string.sub(options, 1, first - 1) .. field .. string.format('%.0f', call.task_id) .. string.sub(options, last + 1)
end

-- The store that accepted the first version stays the task's origin.
local function with_origin(options, before)
  local origin = origin_of(before)
  if not origin then return options end
  local field = '{"origin":"' .. origin .. '"'
  return options == '-' and field .. '}' or field .. ',' .. string.sub(options, 2)
end

-- Gives a task that waits another moment, content and options. Answers whether its record could be read.
local function replace(owner, record, due, destination, options, content, asked)
  local created, before, old_options = string.match(record, '^1 %d+ (%d+) (%S+) ([^\n]*)\n')
  if not created then return false end
  lift(owner, before)
  left[before] = true
  options = with_origin(with_first_call(options, asked.on_dead, old_options), old_options)
  redis.call('HDEL', ENTRIES, owner)
  redis.call('HSET', BODIES, owner, '1 ' .. due .. ' ' .. created .. ' ' .. destination .. ' ' .. options .. '\n' .. content)
  schedule(owner, destination, due)
  set_expiry(owner, due, asked.expires_after)
  return true
end

-- Stores a task of which more is asked than to be delivered; answers as add_with_options.lua does.
local function add_with_options(id, due, destination, options, content, asked)
  local same, key = asked.idempotency, asked.key
  local first = used_before(same)
  if first then
    if first.fingerprint ~= same.fingerprint then return KEY_REUSED end
    if first.by ~= id then return { 'duplicate', first.id, first.due, state_of(first.id) } end
    return first.id == id and first.due or { 'replaced', first.id, first.due, '' }
  end
  local own = redis.call('HGET', BODIES, id)
  if own and key and key_of(own) == key then return due_of(own) end

  local owner, by = string.match(key and redis.call('HGET', OWNERS, key) or '', '^(%d+) (%d+)')
  local record = not own and owner and redis.call('HGET', BODIES, owner)
  if record and by == id then return { 'replaced', owner, due_of(record), '' } end
  local state, entry
  if record then state, entry = standing(owner) end
  if state == 'scheduled' and replace(owner, record, due, destination, options, content, asked) then
    own_key(key, owner, id, now)
    remember(same, owner, due, id)
    return { 'replaced', owner, due, '' }
  end
  if not own then
    if asked.quota and pending() >= asked.quota then return OVER_QUOTA end
    if state == 'leased' and entry then
      entry.mark = '!'
      keep(owner, entry)
    end
  end
  local stored = store(id, due, destination, destination .. ' ' .. options .. '\n' .. content)
  if own or stored == TAKEN then return stored end
  set_expiry(id, due, asked.expires_after)
  if key then own_key(key, id, id, now) end
  remember(same, id, due, id)
  return stored
end
