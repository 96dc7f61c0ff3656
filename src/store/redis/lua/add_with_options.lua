-- Stores new tasks of one lane that ask for more than their delivery, each once however often this
-- is repeated. (nothing) -> scheduled; scheduled -> scheduled (replaced by key)
--
-- ARGV    2 the topic's number of lanes (see lib/open.lua); then for each task: id, "<ms>" (a
--         moment) or "+<ms>" (after now), destination, options, content, and its other requests
-- returns the refusal of lib/open.lua, or {now, then for each task the due ms stored; or -1 if the
--         id belongs to another task, -2 if over the quota, -3 if the idempotency key was used for
--         another task; or {'duplicate' | 'replaced', id, due ms, state} of the earlier task; the
--         state is that of a duplicate, or '' if it is forgotten}
--
-- The other requests of a task are JSON: {"key", "expires_after": ms, "on_dead": the drawn id that
-- the options name, "quota", "idempotency": {"key", "fingerprint", "window": ms}}. The key of
-- "idempotency" is the name under which the lane remembers it. The order of the checks stands in
-- docs/STORE.md ("Deduplication").
--
-- An add that is repeated after a lost answer brings the same drawn id. It finds that id with the
-- idempotency key, otherwise as a task's, otherwise with the key, and answers what it did. Only if
-- another add with that key came in between, it is done again.
-- uses: keys
if redis.call('HGET', OFFSETS, '#shards') ~= ARGV[2] then
  -- uses: open
  local refusal = refusal_of(BODIES, OFFSETS, ARGV[2])
  if refusal then return refusal end
end

-- uses: constants, now, keys, record, owner, idempotency, expiry
local TAKEN, OVER_QUOTA, KEY_REUSED = -1, -2, -3

-- The earliest moment that this call stored for each destination, and the destinations that it took
-- a task from.
local earliest, left = {}, {}

-- The first add with an idempotency key whose window has not ended.
local function used_before(same)
  local id, fingerprint, till, due, by = read_used(same and redis.call('HGET', USED, same.key))
  if not id or now >= tonumber(till) then return nil end
  return { id = id, fingerprint = fingerprint, due = tonumber(due), by = by }
end

-- Each new key removes two whose window has ended, so they cannot accumulate between purges.
local function remember(same, id, due, by)
  if not same then return end
  local over = redis.call('ZRANGEBYSCORE', WINDOWS, '-inf', now, 'LIMIT', 0, 2)
  if #over > 0 then
    redis.call('HDEL', USED, unpack(over))
    redis.call('ZREM', WINDOWS, unpack(over))
  end
  local till = math.min(now + same.window, LAST_MOMENT)
  redis.call('HSET', USED, same.key, write_used(id, same.fingerprint, till, due, by))
  redis.call('ZADD', WINDOWS, till, same.key)
end

-- The due moment and the state of the task of an earlier add, as callers see them; its first due
-- moment and '' if it is forgotten or cannot be read.
local function present(id, first_due)
  -- uses: entry, sweep
  local record = redis.call('HGET', BODIES, id)
  local due = record and due_of(record)
  if not due then return first_due, '' end
  local state = standing(id)
  if state then return due, state end
  local entry = read_entry(redis.call('HGET', ENTRIES, id) or '')
  return due, entry and ENDED[entry.mark] and entry.mark or ''
end

local function pending()
  local count = redis.call('HLEN', BODIES)
  for _, ended in pairs(ENDED) do count = count - redis.call('ZCARD', ended) end
  return count
end

local asked_of, some_have_keys = {}, false
for i = 3, #ARGV, 6 do
  asked_of[i] = cjson.decode(ARGV[i + 5])
  some_have_keys = some_have_keys or asked_of[i].key ~= nil
end

local add_by_key
if some_have_keys then
  -- uses: record, owner, schedule, sweep
  -- The task keeps the id that was drawn for the dead-letter call of its first version.
  local function with_first_call(options, drawn, before)
    local call = drawn and call_of(before)
    if not call then return options end
    local field = '"task_id":'
    local first, last = string.find(options, field .. drawn, 1, true)
    if not first then return options end
    local call_id = string.format('%.0f', call.task_id)
    return string.sub(options, 1, first - 1) .. field .. call_id .. string.sub(options, last + 1)
  end

  -- Gives a waiting task another moment, content and options. Returns whether its record could be
  -- read.
  local function replace(owner, record, due, destination, options, content, asked)
    local _, created, before, old_options = read_record(record)
    if not created then return false end
    lift(owner, before)
    left[before] = true
    options = with_first_call(options, asked.on_dead, old_options)
    options = with_origin(options, origin_of(old_options))
    redis.call('HDEL', ENTRIES, owner)
    record = write_record(due, created, destination, options, content)
    redis.call('HSET', BODIES, owner, record)
    schedule(owner, destination, due)
    set_expiry(owner, due, asked.expires_after)
    return true
  end

  -- Returns the answer for a task with a key if it has been added before, or replaces another task.
  -- Otherwise nil, and a leased owner of the key and its entry: the owner is to be cancelled.
  add_by_key = function(id, own, due, destination, options, content, asked)
    local key = asked.key
    if own and key_of(own) == key then return due_of(own) end
    local owner, by = read_owner(redis.call('HGET', OWNERS, key))
    local record = not own and owner and redis.call('HGET', BODIES, owner)
    if not record then return nil end
    if by == id then return { 'replaced', owner, due_of(record), '' } end
    local state, entry = standing(owner)
    if state == 'scheduled' and replace(owner, record, due, destination, options, content, asked)
    then
      own_key(key, owner, id, now)
      remember(asked.idempotency, owner, due, id)
      return { 'replaced', owner, due, '' }
    end
    return nil, state == 'leased' and entry and owner, entry
  end
end

-- Returns the answer for the task.
local function add(id, due, destination, options, content, asked)
  local same, key = asked.idempotency, asked.key
  local first = used_before(same)
  if first then
    if first.fingerprint ~= same.fingerprint then return KEY_REUSED end
    if first.by ~= id then return { 'duplicate', first.id, present(first.id, first.due) } end
    return first.id == id and first.due or { 'replaced', first.id, first.due, '' }
  end
  local own = redis.call('HGET', BODIES, id)
  local answer, leased, entry
  if key then
    answer, leased, entry = add_by_key(id, own, due, destination, options, content, asked)
    if answer then return answer end
  end
  if not own and asked.quota and pending() >= asked.quota then return OVER_QUOTA end
  if leased then
    -- uses: entries
    entry.mark = '!'
    keep(leased, entry)
  end
  local new, tail = write_record(due, now, destination, options, content)
  if redis.call('HSETNX', BODIES, id, new) == 0 then
    return due_of_same(redis.call('HGET', BODIES, id), tail) or TAKEN
  end
  redis.call('ZADD', SCHEDULES .. destination, due, id)
  if due < (earliest[destination] or math.huge) then earliest[destination] = due end
  set_expiry(id, due, asked.expires_after)
  if key then own_key(key, id, id, now) end
  remember(same, id, due, id)
  return due
end

local answer = { now }
for i = 3, #ARGV, 6 do
  local id, moment, destination, options, content = unpack(ARGV, i, i + 4)
  local ms = tonumber(moment)
  local due = string.sub(moment, 1, 1) == '+' and now + ms or math.max(ms, now)
  answer[#answer + 1] = add(id, due, destination, options, content, asked_of[i])
end
for destination, due in pairs(earliest) do
  if destination == '@pull' then
    -- Pulled tasks are not listed.
  elseif left[destination] then
    -- uses: schedule
    correct(destination)
  else
    redis.call('ZADD', DESTINATIONS, 'LT', due, destination)
  end
end
return answer
