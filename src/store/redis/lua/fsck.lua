-- Looks over one page of one of a lane's structures; judges what it finds there over all of them, and repairs it if told to.
--
-- KEYS    17 what was set aside: hash "<structure> <what stood there> <now>" -> its bytes
-- ARGV    2 structure: 'lane' | 'destinations' | 'bodies' | 'entries' | 'leased' | 'expiries' | 'keys' | 'used' | 'windows' | 'notes' | a final
--         state | 'schedule:<destination>';
--         3 SCAN cursor; 4 SCAN count; 5 1 to repair, 0 to look; 6 lanes of the topic (0: not known); 7 the lane's shard;
--         8.. names of destinations: all that may have a schedule (bodies), or those to be looked at (destinations)
-- returns {next cursor, tasks looked at, highest id among bodies or '', {flaw, subject, 1 if repaired, ...},
--          destinations that the lane knows by name (lane), highest id among bodies that no counter can have come to yet, or ''}. transition: whatever leads back to the road; see store/check.rs
--
-- Each flaw is reported by one structure: a task's own by the walk over bodies, an absent body by whatever names it, a
-- wrong schedule by the walk over that schedule. A task waits on the schedule of the destination that its body names:
-- its home.
-- uses: now, keys, entry, record, owner, idempotency, entries, expiry, schedule, lease, ending
local ASIDE = KEYS[17]
local structure, cursor, count = ARGV[2], ARGV[3], ARGV[4]
local repairs, lanes, shard = ARGV[5] == '1', tonumber(ARGV[6]), tonumber(ARGV[7])
local FIRST_NAME = 8
local FAR = 9007199254740992
-- Ids are drawn no further ahead than this: a day's worth. The counter must not follow what lies beyond.
local REACH = (math.floor(now / 1000) + 86400) * 1000000
local STATES = { 'delivered', 'dead', 'cancelled', 'expired' }

local findings = {}

-- Notes a flaw, and answers whether it is to be repaired.
local function find(flaw, subject)
  findings[#findings + 1] = flaw
  findings[#findings + 1] = subject
  findings[#findings + 1] = repairs and 1 or 0
  return repairs
end

local function leave_alone(flaw, subject)
  find(flaw, subject)
  findings[#findings] = 0
end

local function set_aside(what, bytes)
  redis.call('HSET', ASIDE, structure .. ' ' .. what .. ' ' .. string.format('%.0f', now), bytes)
end

local function is_id(text)
  return #text <= 16 and string.match(text, '^[1-9]%d*$') ~= nil and tonumber(text) < FAR
end

local function is_destination(name)
  return name == '@pull' or (#name <= 128 and (string.match(name, '^[%w%._%-]+$') or string.match(name, '^[%w%._%-]+:[1-9]%d*$')) ~= nil)
end

-- A score as a moment; nil if it is none.
local function moment(score)
  local ms = tonumber(score)
  return ms and ms >= 0 and ms < FAR and ms % 1 == 0 and ms or nil
end

-- A record's head; or nil, and whether another version wrote it.
local function read_head(record)
  local due, _, destination, options = read_record(record)
  if not due or not moment(due) or not is_destination(destination) then
    return nil, is_of_another_version(record)
  end
  if options ~= '-' and not read_options(options) then return nil, false end
  local after = expires_after(options)
  return { due = tonumber(due), home = destination, expires = after and math.min(due + after + 1, FARTHEST) or nil }
end

local function sound_entry(raw)
  local entry = read_entry(raw)
  local is_sound = entry and entry.attempts < 4294967296 and is_destination(entry.destination)
    and (entry.mark == '-' or entry.mark == '!' or ENDED[entry.mark])
    and has_known_lease(entry)
  return is_sound and entry or nil
end

local function new_entry(home, attempts)
  local entry = fresh_entry(home)
  entry.attempts = attempts
  return entry
end

local function due_at(destination, id)
  return redis.call('ZSCORE', SCHEDULES .. destination, id)
end

-- As `correct`, but never lists a name that would stop the lane.
local function correct_sound(destination)
  if is_destination(destination) then correct(destination) end
end

local function take_off(destination, id)
  redis.call('ZREM', SCHEDULES .. destination, id)
  correct_sound(destination)
end

-- Puts a task on a schedule for exactly this moment, wherever it stood on it.
local function put_on(destination, id, due)
  redis.call('ZADD', SCHEDULES .. destination, due, id)
  correct(destination)
end

local function stands_on_some_schedule(id)
  for i = FIRST_NAME, #ARGV do
    if due_at(ARGV[i], id) then return true end
  end
  return false
end

-- The states in whose lists the task stands.
local function listed_ends(id)
  local ends = {}
  for _, state in ipairs(STATES) do
    if redis.call('ZSCORE', ENDED[state], id) then ends[#ends + 1] = state end
  end
  return ends
end

-- There is nothing to deliver. Dead tasks are kept, and a later version may be able to read it.
local function end_unreadable(id, raw)
  local entry = raw and sound_entry(raw)
  if raw and not entry then set_aside(id, raw) end
  local destination = entry and entry.destination or '@pull'
  redis.call('ZREM', LEASED, id)
  take_off(destination, id)
  for i = FIRST_NAME, #ARGV do
    if due_at(ARGV[i], id) then
      destination = is_destination(ARGV[i]) and ARGV[i] or destination
      take_off(ARGV[i], id)
    end
  end
  bury(id, entry or new_entry(destination, 0))
end

local function judge_ended(id, entry, ended, ends, is_live)
  local changes = false
  if entry.mark ~= ended and find('ended-unmarked', id) then
    entry.mark, changes = ended, true
  end
  local score = redis.call('ZSCORE', ENDED[ended], id)
  if not score then
    if find('ended-unlisted', id) then redis.call('ZADD', ENDED[ended], now, id) end
  elseif not moment(score) then
    if find('bad-moment', id) then redis.call('ZADD', ENDED[ended], now, id) end
  end
  for _, state in ipairs(ends) do
    if state ~= ended and find('ended-twice', id) then redis.call('ZREM', ENDED[state], id) end
  end
  if is_live and find('ended-yet-live', id) then
    redis.call('ZREM', LEASED, id)
    take_off(entry.destination, id)
  end
  return changes
end

-- Where a task on its way stands. `entry` is nil before its first claim. Answers whether the entry is to be kept.
local function judge_live(id, head, entry, lease, due)
  local home = head.home
  local is_held = lease and entry and entry.current ~= '*'
  if entry and entry.mark == '!' and not is_held then
    if find('cancel-without-lease', id) then
      redis.call('ZREM', LEASED, id)
      take_off(home, id)
      finish(id, entry, 'cancelled')
    end
    return false
  elseif is_held then
    if due and find('scheduled-and-leased', id) then take_off(home, id) end
    if not moment(lease) and find('bad-moment', id) then redis.call('ZADD', LEASED, now, id) end
  elseif lease and due then
    if find('scheduled-and-leased', id) then redis.call('ZREM', LEASED, id) end
  elseif lease then
    if find('leased-without-receipt', id) then
      local deadline = moment(lease)
      redis.call('ZREM', LEASED, id)
      put_on(home, id, deadline and deadline <= now + FURTHEST_DEADLINE_MS and deadline or now)
      if not entry then keep(id, new_entry(home, 1)) end
    end
  elseif not due and not stands_on_some_schedule(id) then
    if find('body-without-place', id) then put_on(home, id, math.max(head.due, now)) end
  end
  if due and not is_held and not moment(due) and find('bad-moment', id) then
    put_on(home, id, math.max(head.due, now))
  end
  return true
end

-- What stands, or should stand, of a task among those that expire.
local function noted_expiry(id)
  return has_expiries() and tonumber(redis.call('ZSCORE', EXPIRIES, id) or nil) or nil
end

local function right_expiry(id, head, is_over)
  if not head.expires or is_over then return nil end
  return redis.call('ZSCORE', LEASED, id) and -head.expires or head.expires
end

-- After whatever was repaired of the task.
local function put_expiry_right(id, head)
  local right = right_expiry(id, head, #listed_ends(id) > 0)
  if right then
    redis.call('ZADD', EXPIRIES, right, id)
  else
    redis.call('ZREM', EXPIRIES, id)
  end
end

local function judge(id, record)
  if lanes > 0 and math.fmod(tonumber(id), lanes) ~= shard then leave_alone('misplaced', id) end
  local raw, ends = redis.call('HGET', ENTRIES, id), listed_ends(id)
  local head, is_foreign = read_head(record)
  if is_foreign then return leave_alone('foreign-body', id) end
  if not head then
    -- The body of a task that has ended is not called any more.
    if #ends == 0 and find('unreadable-body', id) then end_unreadable(id, raw) end
    return
  end
  local lease, due = redis.call('ZSCORE', LEASED, id), due_at(head.home, id)
  local is_live = lease or due
  local entry, changes = raw and sound_entry(raw) or nil, false
  if raw and not entry then
    -- Where the task stands tells what is to be known.
    entry = new_entry(head.home, 1)
    entry.mark = not is_live and ends[1] or '-'
    if find('unreadable-entry', id) then
      set_aside(id, raw)
      changes = true
    end
  end
  if entry and entry.destination ~= head.home then
    if find('destinations-differ', id) then changes = true end
    entry.destination = head.home
  end
  local ended = entry and ENDED[entry.mark] and entry.mark
  if not ended and #ends > 0 and not is_live then
    ended, entry = ends[1], entry or new_entry(head.home, 0)
  end
  local expires = noted_expiry(id)
  if expires ~= right_expiry(id, head, ended) then find('expiry-wrong', id) end
  if ended then
    changes = judge_ended(id, entry, ended, ends, is_live) or changes
  else
    for _, state in ipairs(ends) do
      if find('live-yet-listed', id) then redis.call('ZREM', ENDED[state], id) end
    end
    if changes then keep(id, entry) end
    judge_live(id, head, entry, lease, due)
    changes = false
  end
  if changes then keep(id, entry) end
  if repairs and (expires or head.expires) then put_expiry_right(id, head) end
end

-- A key: does it name a task that was added with it?
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
  elseif tonumber(redis.call('ZSCORE', WINDOWS, key) or nil) ~= till and find('window-wrong', key) then
    redis.call('ZADD', WINDOWS, till, key)
  end
end

local function judge_window(key)
  if redis.call('HEXISTS', USED, key) == 0 and find('window-wrong', key) then redis.call('ZREM', WINDOWS, key) end
end

-- A task on a schedule: is there something to deliver, and is this its home?
local function judge_scheduled(destination, id, score)
  local record = redis.call('HGET', BODIES, id)
  if not record then
    if find('scheduled-without-body', id) then take_off(destination, id) end
    return
  end
  local head = read_head(record)
  if not head or head.home == destination then return end
  if find('wrong-schedule', id) then
    local entry = redis.call('HGET', ENTRIES, id)
    entry = entry and sound_entry(entry)
    local stands_elsewhere = redis.call('ZSCORE', LEASED, id) or due_at(head.home, id) or #listed_ends(id) > 0
      or (entry and ENDED[entry.mark])
    take_off(destination, id)
    if not stands_elsewhere then put_on(head.home, id, moment(score) or math.max(head.due, now)) end
  end
end

-- What the lane knows of its destinations: when their first task falls due.
local function judge_destination(name)
  local head = redis.call('ZRANGE', SCHEDULES .. name, 0, 0, 'WITHSCORES')
  local listed = redis.call('ZSCORE', DESTINATIONS, name)
  if not is_destination(name) then
    if listed and find('unreadable-destination', name) then redis.call('ZREM', DESTINATIONS, name) end
  elseif name == '@pull' then
    if listed and find('called-wrong', name) then redis.call('ZREM', DESTINATIONS, name) end
  elseif head[2] and head[2] ~= listed then
    if find('earliest-wrong', name) then correct(name) end
  elseif listed and not head[2] then
    if find('listed-without-schedule', name) then correct(name) end
  end
end

local function judge_lane()
  if lanes > 0 and redis.call('HLEN', BODIES) > 0 then
    local remembered = redis.call('HGET', OFFSETS, '#shards')
    if (not remembered or tonumber(remembered) ~= lanes) and find('shards-differ', remembered or 'none') then
      redis.call('HSET', OFFSETS, '#shards', lanes)
    end
  end
  local names = redis.call('ZRANGE', DESTINATIONS, 0, -1)
  for _, name in ipairs(redis.call('HKEYS', OFFSETS)) do
    if name ~= '#shards' and name ~= '#opening' then names[#names + 1] = name end
  end
  return names
end

-- A page of a hash or a zset: {name, value, ...}.
local function page(verb, key)
  local found = redis.call(verb, key, cursor, 'COUNT', count)
  cursor = found[1]
  return found[2]
end

local function walk_hash(key, judge_field)
  local found = page('HSCAN', key)
  for i = 1, #found, 2 do
    local field, value = found[i], found[i + 1]
    if is_id(field) then
      judge_field(field, value)
    elseif find('not-an-id', field) then
      set_aside(field, value)
      redis.call('HDEL', key, field)
    end
  end
  return #found / 2
end

local function walk_zset(key, judge_member, on_removal)
  local found = page('ZSCAN', key)
  for i = 1, #found, 2 do
    local member, score = found[i], found[i + 1]
    if is_id(member) then
      judge_member(member, score)
    elseif find('not-an-id', member) then
      set_aside(member, score)
      redis.call('ZREM', key, member)
      if on_removal then on_removal() end
    end
  end
end

-- Names that may be anything.
local function walk_names(verb, key, judge_name)
  local found = page(verb, key)
  for i = 1, #found, 2 do judge_name(found[i], found[i + 1]) end
end

local function judge_bodiless(id, flaw, remove)
  if redis.call('HEXISTS', BODIES, id) == 0 and find(flaw, id) then remove() end
end

local function higher(id, than)
  return (than == '' or tonumber(id) > tonumber(than)) and id or than
end

local looked_at, highest, beyond, names = 0, '', '', {}
local destination = string.match(structure, '^schedule:(.*)$')
if structure == 'lane' then
  names, cursor = judge_lane(), '0'
elseif structure == 'destinations' then
  for i = FIRST_NAME, #ARGV do judge_destination(ARGV[i]) end
  cursor = '0'
elseif structure == 'bodies' then
  looked_at = walk_hash(BODIES, function(id, record)
    if tonumber(id) <= REACH then
      highest = higher(id, highest)
    else
      beyond = higher(id, beyond)
    end
    judge(id, record)
  end)
elseif structure == 'entries' then
  walk_hash(ENTRIES, function(id, raw)
    judge_bodiless(id, 'entry-without-body', function() redis.call('HDEL', ENTRIES, id) end)
  end)
elseif destination then
  walk_zset(SCHEDULES .. destination, function(id, score)
    judge_scheduled(destination, id, score)
  end, function() correct_sound(destination) end)
elseif structure == 'leased' then
  walk_zset(LEASED, function(id)
    judge_bodiless(id, 'leased-without-body', function() redis.call('ZREM', LEASED, id) end)
  end)
elseif structure == 'expiries' then
  walk_zset(EXPIRIES, function(id)
    judge_bodiless(id, 'expiry-wrong', function() redis.call('ZREM', EXPIRIES, id) end)
  end)
elseif structure == 'keys' then
  walk_names('HSCAN', OWNERS, judge_key)
elseif structure == 'used' then
  walk_names('HSCAN', USED, judge_used)
elseif structure == 'windows' then
  walk_names('ZSCAN', WINDOWS, judge_window)
elseif structure == 'notes' then
  walk_hash(NOTES, function(id)
    judge_bodiless(id, 'note-without-body', function() redis.call('HDEL', NOTES, id) end)
  end)
else
  local key = ENDED[structure]
  walk_zset(key, function(id)
    judge_bodiless(id, 'ended-without-body', function() redis.call('ZREM', key, id) end)
  end)
end
return { cursor, looked_at, highest, findings, names, beyond }
