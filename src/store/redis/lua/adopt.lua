-- Stores tasks of another store as they were there.    (nothing) -> scheduled | delivered | dead |
-- cancelled | expired
--
-- ARGV    2 the topic's number of lanes (see lib/open.lua); then for each task: id, created ms,
--         due ms, destination, options, content, state, the ms for which it waits or at which it
--         ended, attempts, outcome, '' or the key that leads to this lane, '' or the ms at which an
--         add last set it by that key, '' or the ms after its due moment at which it expires, '1'
--         if a task of another topic has the id, else '', and '1' if the other store lends it, and
--         so continues with a refused task, else ''
-- returns the refusal of lib/open.lua, or {now, then for each task 'new', 'known' (adopted before),
--         'own' (this store lends it), 'taken' (another task has the id), 'superseded' (a task with
--         its key was set later), 'ended' (it waited, and has ended as it did elsewhere) or
--         'cancelling' (it is leased, and has ended elsewhere)}
-- uses: keys
if redis.call('HGET', OFFSETS, '#shards') ~= ARGV[2] then
  -- uses: open
  local refusal = refusal_of(BODIES, OFFSETS, ARGV[2])
  if refusal then return refusal end
end

-- uses: now, keys, entry, record, owner, entries, expiry, schedule, lease, ending, sweep

-- The task has ended at the other store: if it waits here, it ends here too.
local function take_end(id, state, outcome)
  local live, entry = standing(id)
  if not live then return 'known' end
  entry = entry or fresh_entry(destination_of(redis.call('HGET', BODIES, id)))
  if live == 'leased' then
    entry.mark = '!'
    keep(id, entry)
    return 'cancelling'
  end
  lift(id, entry.destination)
  entry.current, entry.past, entry.outcome = '*', '*', outcome
  finish(id, entry, state)
  return 'ended'
end

local function known(id, created, due, options, content, state, outcome)
  local record = redis.call('HGET', BODIES, id)
  local stored_due, stored_created, _, stored_options, content_at = read_record(record)
  local is_same = stored_due == due and stored_created == created
    and is_same_content(stored_options, string.sub(record, content_at), options, content)
  if not is_same or origin_of(stored_options) ~= origin_of(options) then return 'taken' end
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw)
  if entry and returns_to(entry) and lease_lasts(deadline_of(id)) then return 'own' end
  return ENDED[state] and state ~= 'dead' and take_end(id, state, outcome) or 'known'
end

-- The owner of the key, its record, and whether it was set at that moment or later; nil if there is
-- none.
local function owner_of(key, set)
  local owner, _, owner_set = read_owner(redis.call('HGET', OWNERS, key))
  local record = owner and redis.call('HGET', BODIES, owner)
  if record then return owner, record, tonumber(owner_set) >= tonumber(set) end
end

-- Whether the key's owner was set at that moment or later. An owner that was set earlier is
-- cancelled.
local function is_superseded(key, set)
  local owner, record, is_later = owner_of(key, set)
  if not owner or is_later then return is_later end
  local live, entry = standing(owner)
  if live then entry = entry or fresh_entry(destination_of(record)) end
  if live == 'leased' then
    entry.mark = '!'
    keep(owner, entry)
  elseif live then
    lift(owner, entry.destination)
    entry.current, entry.past = '*', '*'
    finish(owner, entry, 'cancelled')
  end
  return false
end

-- The answer if another task has the id. A lent task continues at the other store, and has the key
-- there.
local function taken(key, set, lent)
  local is_late
  if lent then is_late = is_superseded(key, set) else is_late = select(3, owner_of(key, set)) end
  return is_late and 'superseded' or 'taken'
end

local function adopt(id, created, due, destination, options, content, state, moment, attempts,
  outcome, key, set, expires, namesake, lent)
  local competes = key ~= '' and set ~= '' and not ENDED[state]
  if namesake ~= '' then return competes and taken(key, set, lent ~= '') or 'taken' end
  if competes and redis.call('HEXISTS', BODIES, id) == 0 and is_superseded(key, set) then
    return 'superseded'
  end
  local record = write_record(due, created, destination, options, content)
  if redis.call('HSETNX', BODIES, id, record) == 0 then
    local became = known(id, created, due, options, content, state, outcome)
    return became == 'taken' and competes and taken(key, set, lent ~= '') or became
  end
  local entry = fresh_entry(destination)
  entry.attempts, entry.outcome = tonumber(attempts), outcome
  if ENDED[state] then
    entry.mark = state
    keep(id, entry)
    redis.call('ZADD', ENDED[state], moment, id)
    return 'new'
  end
  if entry.attempts > 0 or outcome ~= '' then keep(id, entry) end
  schedule(id, destination, tonumber(moment))
  set_expiry(id, tonumber(due), tonumber(expires))
  if competes then
    own_key(key, id, id, set)
  elseif key ~= '' then
    local owner = read_owner(redis.call('HGET', OWNERS, key))
    local is_pending = owner and redis.call('HEXISTS', BODIES, owner) == 1 and standing(owner)
    if not is_pending then own_key(key, id, id, created) end
  end
  return 'new'
end

local answer = { now }
for i = 3, #ARGV, 15 do answer[#answer + 1] = adopt(unpack(ARGV, i, i + 14)) end
return answer
