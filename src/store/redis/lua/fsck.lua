-- Judges a page of one of a lane's structures, and repairs what it finds if told to.
--
-- KEYS    19 bytes that a repair set aside: hash "<structure> <item> <now>" -> bytes
-- ARGV    2 structure: 'destinations', 'schedule', or a key of HASHES or ZSETS; 3 SCAN cursor;
--         4 SCAN count; 5 1 to repair, 0 to check; 6 lanes of the topic (0: unknown); 7 the lane's
--         shard; 8 how many seconds an id may be ahead of the clock; 9.. the destinations, or the
--         one of the schedule
-- returns {next cursor, tasks checked, highest id among records that a counter may have reached or
--         0, {{flaw, subject, 1 if repaired}, ...}, names of recurring schedules}
--
-- A task is judged at once by its record, entry, lease, list of ends and home, the schedule of the
-- destination in its record. Its one repair puts it where these say: the walk over records judges
-- each task, and the walk over a schedule those that do not belong there. What names a task without
-- a record is removed.
-- uses: constants, now, keys, entry, record, owner, idempotency
-- uses: entries, expiry, schedule, ending, recurring
local ASIDE = KEYS[19]
local structure, cursor = ARGV[2], ARGV[3]
local repairs = ARGV[5] == '1'
local lanes, shard = tonumber(ARGV[6]), tonumber(ARGV[7])
-- The counter must not follow ids beyond this one, because none is drawn there.
local REACH = (math.floor(now / 1000) + tonumber(ARGV[8])) * 1000000
local FINAL = { 'delivered', 'dead', 'cancelled', 'expired' }
local HASHES = {
  bodies = BODIES, entries = ENTRIES, notes = NOTES, keys = OWNERS, used = USED,
  recurring = RECURRING,
}
local ZSETS = {
  leased = LEASED, expiries = EXPIRIES, windows = WINDOWS, plans = PLANS,
  delivered = ENDED.delivered, dead = ENDED.dead, cancelled = ENDED.cancelled,
  expired = ENDED.expired,
}
-- What names a task without a record; the lists of ends have another one.
local STRAYS = {
  entries = 'entry-without-body', notes = 'note-without-body', leased = 'leased-without-body',
  expiries = 'expiry-wrong',
}

local findings, names, highest = {}, {}, 0

-- Notes a flaw, and returns whether it is to be repaired.
local function find(flaw, subject, has_no_repair)
  local is_repaired = repairs and not has_no_repair
  findings[#findings + 1] = { flaw, subject, is_repaired and 1 or 0 }
  return is_repaired
end

local function set_aside(what, item, bytes)
  redis.call('HSET', ASIDE, what .. ' ' .. item .. ' ' .. string.format('%.0f', now), bytes)
end

local function is_id(text)
  return #text <= 16 and string.match(text, '^[1-9]%d*$') ~= nil and tonumber(text) <= MAX_ID
end

local function is_destination(name)
  if name == '@pull' then return true end
  local is_name = string.match(name, '^[%w%._%-]+$') or string.match(name, '^[%w%._%-]+:[1-9]%d*$')
  return #name <= 128 and is_name ~= nil
end

-- A score as a moment; nil if it is not a moment.
local function as_moment(score)
  local ms = tonumber(score)
  return ms and ms >= 0 and ms <= LAST_MOMENT and ms % 1 == 0 and ms or nil
end

-- The head of a record; or nil, and whether another version wrote the record.
local function read_head(record)
  local due, _, destination, options = read_record(record)
  if not due or not as_moment(due) or not is_destination(destination) then
    return nil, is_of_another_version(record)
  end
  if options ~= '-' and not read_options(options) then return nil, false end
  local after = expires_after(options)
  local expires = after and math.min(due + after + 1, LAST_MOMENT) or nil
  return { due = tonumber(due), home = destination, expires = expires }
end

-- The scores of a task in the lists of ends, the first list that has it, and how many have it.
local function ends_of(id)
  local listed, first, lists = {}, nil, 0
  for _, state in ipairs(FINAL) do
    listed[state] = redis.call('ZSCORE', ENDED[state], id)
    if listed[state] then first, lists = first or state, lists + 1 end
  end
  return listed, first, lists
end

local function sound_entry(raw)
  local entry = read_entry(raw)
  local is_sound = entry and entry.attempts < 4294967296 and is_destination(entry.destination)
    and (entry.mark == '-' or entry.mark == '!' or ENDED[entry.mark])
    and has_known_lease(entry)
  return is_sound and entry or nil
end

-- Never lists a name that would stop the lane.
local function take_off(destination, id)
  redis.call('ZREM', SCHEDULES .. destination, id)
  if is_destination(destination) then correct(destination) end
end

-- Puts a task where it is, if it is not there. It never waits for less than its record or its
-- mover's lease says. `stood`: the score that it had on a wrong schedule.
local function judge_task(id, record, stood)
  local head, is_foreign = read_head(record)
  if is_foreign then return find('foreign-body', id, true) end
  local raw = redis.call('HGET', ENTRIES, id)
  local sound = raw and sound_entry(raw)
  local home = head and head.home or sound and sound.destination
    or structure == 'schedule' and is_destination(ARGV[9]) and ARGV[9] or '@pull'
  local lease = redis.call('ZSCORE', LEASED, id)
  local due = redis.call('ZSCORE', SCHEDULES .. home, id)
  local listed, first, lists = ends_of(id)

  -- An entry tells where the task is. If it cannot be read, or the task has no place, a list of
  -- ends does. A task that was never handed out has no entry.
  local is_held = lease and sound and sound.current ~= '*'
  local ended = sound and ENDED[sound.mark] and sound.mark
  if not ended and not is_held and not (due and (sound or not raw)) then ended = first end
  local entry = sound or fresh_entry(home)
  if not sound then entry.attempts = (raw or lease) and 1 or 0 end

  local before = #findings
  local function flaw(name, is_so)
    if is_so then find(name, id) end
  end
  flaw('unreadable-entry', raw and not sound)
  flaw('destinations-differ', head and entry.destination ~= home)
  if ended then
    flaw('ended-unmarked', entry.mark ~= ended and (sound or not raw))
    flaw('ended-unlisted', not listed[ended])
    flaw('ended-twice', lists > (listed[ended] and 1 or 0))
    flaw('bad-moment', listed[ended] and not as_moment(listed[ended]))
    flaw('ended-yet-live', lease or due)
  elseif not head then
    -- There is nothing to deliver. A dead task is kept, and a later version may be able to read it.
    find('unreadable-body', id)
    ended, entry.outcome = 'dead', UNREADABLE
  elseif entry.mark == '!' and not is_held then
    find('cancel-without-lease', id)
    ended = 'cancelled'
  else
    local place = is_held and lease or due
    flaw('live-yet-listed', lists > 0)
    flaw('scheduled-and-leased', lease and due)
    flaw('leased-without-receipt', lease and not place)
    flaw('body-without-place', not lease and not due)
    flaw('bad-moment', place and not as_moment(place))
  end
  local noted = has_expiries() and tonumber(redis.call('ZSCORE', EXPIRIES, id)) or nil
  local expires = head and not ended and head.expires or nil
  if is_held and expires then expires = -expires end
  flaw('expiry-wrong', noted ~= expires)
  if not repairs or #findings == before then return end

  if raw and not sound then set_aside('entries', id, raw) end
  entry.destination = home
  redis.call('ZREM', LEASED, id)
  for _, state in ipairs(FINAL) do redis.call('ZREM', ENDED[state], id) end
  take_off(home, id)
  if ended then
    finish(id, entry, ended)
    redis.call('ZADD', ENDED[ended], as_moment(listed[ended]) or now, id)
    return
  elseif is_held then
    redis.call('ZADD', LEASED, as_moment(lease) or now, id)
  else
    -- A worker may be calling it until its lease ends.
    local deadline = as_moment(lease)
    if deadline and deadline > now + FURTHEST_DEADLINE_MS then deadline = nil end
    local known = math.max(as_moment(stood) or deadline or now, deadline or 0)
    local returns = as_moment(returns_to(entry)) or 0
    schedule(id, home, as_moment(due) or math.max(known, head.due, returns))
    correct(home)
  end
  if raw or lease then keep(id, entry) end
  if expires then
    redis.call('ZADD', EXPIRIES, expires, id)
  elseif noted then
    redis.call('ZREM', EXPIRIES, id)
  end
end

local function judge_body(id, record)
  if tonumber(id) <= REACH then
    highest = math.max(highest, tonumber(id))
  else
    find('counter-behind', id, true)
  end
  if lanes > 0 and math.fmod(tonumber(id), lanes) ~= shard then find('misplaced', id, true) end
  judge_task(id, record)
end

-- The walk over records reports a record that cannot be read, unless the task has ended.
local function judge_scheduled(id, score)
  local record = redis.call('HGET', BODIES, id)
  local head, is_foreign = read_head(record or '')
  if is_foreign or head and head.home == ARGV[9] then return end
  if not record then
    find('scheduled-without-body', id)
  elseif head or select(2, ends_of(id)) then
    find('wrong-schedule', id)
  end
  if repairs then
    take_off(ARGV[9], id)
    if record then judge_task(id, record, score) end
  end
end

-- Checks the earliest due moment of a destination.
local function judge_destination(name)
  local is_sound = is_destination(name)
  local due = is_sound and name ~= '@pull'
    and redis.call('ZRANGE', SCHEDULES .. name, 0, 0, 'WITHSCORES')[2] or false
  if redis.call('ZSCORE', DESTINATIONS, name) == due then return end
  local flaw = not is_sound and 'unreadable-destination' or name == '@pull' and 'called-wrong'
    or due and 'earliest-wrong' or 'listed-without-schedule'
  if find(flaw, name) then
    redis.call('ZREM', DESTINATIONS, name)
    if is_sound then correct(name) end
  end
end

-- Checks that a key names a task that was added with it.
local function judge_key(key, raw)
  local owner = read_owner(raw)
  local record = owner and redis.call('HGET', BODIES, owner)
  if record and (key_of(record) == key or not read_head(record)) then return end
  if find('key-without-task', key) then redis.call('HDEL', OWNERS, key) end
end

-- Checks the answer of an idempotency key, and that the end of its window is listed.
local function judge_used(key)
  local raw = redis.call('HGET', USED, key)
  if raw and structure == 'windows' then return end
  local _, _, till = read_used(raw)
  if raw and not till then
    if find('unreadable-key', key) then
      set_aside('used', key, raw)
      redis.call('HDEL', USED, key)
      redis.call('ZREM', WINDOWS, key)
    end
  elseif tonumber(redis.call('ZSCORE', WINDOWS, key)) ~= tonumber(till)
    and find('window-wrong', key) then
    redis.call('ZREM', WINDOWS, key)
    if till then redis.call('ZADD', WINDOWS, till, key) end
  end
end

-- Checks that a planner looks at a recurring schedule that can be read and is not paused, and at no
-- other.
local function judge_recurring(name)
  local text = redis.call('HGET', RECURRING, name)
  if structure == 'recurring' then
    names[#names + 1] = name
  elseif text then
    return
  end
  local plan = read_recurring(text)
  if text and not plan then return find('unreadable-schedule', name, true) end
  local is_active, look = plan and plan.paused == '-', redis.call('ZSCORE', PLANS, name)
  if is_active and not look and find('schedule-without-plan', name) then
    redis.call('ZADD', PLANS, now, name)
  elseif look and not is_active and find('plan-without-schedule', name) then
    redis.call('ZREM', PLANS, name)
  end
end

if structure == 'destinations' then
  for i = 9, #ARGV do judge_destination(ARGV[i]) end
  return { '0', 0, 0, findings, names }
end

local key = HASHES[structure] or ZSETS[structure] or SCHEDULES .. ARGV[9]
local scan, remove = 'ZSCAN', 'ZREM'
if HASHES[structure] then scan, remove = 'HSCAN', 'HDEL' end

local function judge_stray(id)
  if redis.call('HEXISTS', BODIES, id) == 0
    and find(STRAYS[structure] or 'ended-without-body', id) then
    redis.call(remove, key, id)
  end
end

local of_ids = { bodies = judge_body, schedule = judge_scheduled }
-- Those whose names may be any text.
local of_names = {
  keys = judge_key, used = judge_used, windows = judge_used, recurring = judge_recurring,
  plans = judge_recurring,
}
local page = redis.call(scan, key, cursor, 'COUNT', ARGV[4])
for i = 1, #page[2], 2 do
  local item, value = page[2][i], page[2][i + 1]
  local judge = of_names[structure] or is_id(item) and (of_ids[structure] or judge_stray)
  if judge then
    judge(item, value)
  elseif find('not-an-id', item) then
    set_aside(structure == 'schedule' and 'schedule:' .. ARGV[9] or structure, item, value)
    redis.call(remove, key, item)
    if structure == 'schedule' then take_off(ARGV[9], item) end
  end
end
if structure ~= 'bodies' then return { page[1], 0, 0, findings, names } end

if cursor == '0' and lanes > 0 and redis.call('HLEN', BODIES) > 0 then
  local remembered = redis.call('HGET', OFFSETS, '#shards')
  if tonumber(remembered) ~= lanes and find('shards-differ', remembered or 'none') then
    redis.call('HSET', OFFSETS, '#shards', lanes)
  end
end
return { page[1], #page[2] / 2, highest, findings, names }
