-- Checks that each record can be read, and that its task stands in one place.
--
-- ARGV    2 'bodies'; 9.. all destinations that may have a schedule; the others in lib/check.lua
-- returns see lib/check.lua
-- uses: constants, now, keys, entries, expiry, ending, check
local lanes, shard = tonumber(ARGV[6]), tonumber(ARGV[7])
-- The counter must not follow ids beyond this one, because none is drawn there.
local REACH = (math.floor(now / 1000) + tonumber(ARGV[8])) * 1000000

local function stands_on_some_schedule(id)
  for i = FIRST_NAME, #ARGV do
    if due_at(ARGV[i], id) then return true end
  end
  return false
end

-- There is nothing to deliver. A dead task is kept, and a later version may be able to read it.
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
  elseif not as_moment(score) then
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

-- Checks where a waiting or leased task stands. `entry` is nil before its first claim. Returns
-- whether the entry is to be kept.
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
    if not as_moment(lease) and find('bad-moment', id) then redis.call('ZADD', LEASED, now, id) end
  elseif lease and due then
    if find('scheduled-and-leased', id) then redis.call('ZREM', LEASED, id) end
  elseif lease then
    if find('leased-without-receipt', id) then
      local deadline = as_moment(lease)
      redis.call('ZREM', LEASED, id)
      put_on(home, id, deadline and deadline <= now + FURTHEST_DEADLINE_MS and deadline or now)
      if not entry then keep(id, new_entry(home, 1)) end
    end
  elseif not due and not stands_on_some_schedule(id) then
    if find('body-without-place', id) then put_on(home, id, math.max(head.due, now)) end
  end
  if due and not is_held and not as_moment(due) and find('bad-moment', id) then
    put_on(home, id, math.max(head.due, now))
  end
  return true
end

-- The expiry that is listed, or should be listed, for a task.
local function noted_expiry(id)
  return has_expiries() and tonumber(redis.call('ZSCORE', EXPIRIES, id) or nil) or nil
end

local function right_expiry(id, head, is_over)
  if not head.expires or is_over then return nil end
  return redis.call('ZSCORE', LEASED, id) and -head.expires or head.expires
end

-- Runs after all repairs of the task.
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
    -- The content of a task that has ended is not delivered any more.
    if #ends == 0 and find('unreadable-body', id) then end_unreadable(id, raw) end
    return
  end
  local lease, due = redis.call('ZSCORE', LEASED, id), due_at(head.home, id)
  local is_live = lease or due
  local entry, changes = raw and sound_entry(raw) or nil, false
  if raw and not entry then
    -- The place of the task tells what its entry must have said.
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

local function higher(id, than)
  return (than == '' or tonumber(id) > tonumber(than)) and id or than
end

local highest, beyond = '', ''
local looked_at = walk_hash(BODIES, function(id, record)
  if tonumber(id) <= REACH then
    highest = higher(id, highest)
  else
    beyond = higher(id, beyond)
  end
  judge(id, record)
end)
return { page_cursor, looked_at, highest, findings, {}, beyond }
