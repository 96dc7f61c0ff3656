-- What the scripts of `fsck` share. Each checks one page of one of a lane's structures, comparing
-- all structures, and repairs what it finds if told to.
--
-- KEYS    19 bytes that a repair set aside: hash "<structure> <item> <now>" -> bytes
-- ARGV    2 structure, see each script; 3 SCAN cursor; 4 SCAN count; 5 1 to repair, 0 to check;
--         6 lanes of the topic (0: unknown); 7 the lane's shard; 8 how many seconds an id may be
--         ahead of the clock; 9.. names of destinations, for some
-- All of them return {next cursor, tasks checked, highest id among records or '', {flaw, subject,
-- 1 if repaired, ...}, names of destinations that the lane knows, highest id among records that no
-- counter can have reached yet, or ''}.
--
-- Each flaw is reported by one structure: a task's own flaws by the walk over records, a missing
-- record by the structure that names it, a wrong schedule by the walk over that schedule. A task
-- waits on the schedule of the destination in its record: its home. For the repairs, see
-- store/check.rs.
-- uses: constants, now, keys, entry, record, schedule
local ASIDE = KEYS[19]
local structure = ARGV[2]
local page_cursor = ARGV[3]
local PAGE = ARGV[4]
local repairs = ARGV[5] == '1'
local FIRST_NAME = 9
local FINAL = { 'delivered', 'dead', 'cancelled', 'expired' }

local findings = {}

-- Notes a flaw, and returns whether it is to be repaired.
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

-- Puts a task on a schedule for exactly this moment, even if it was there for another.
local function put_on(destination, id, due)
  redis.call('ZADD', SCHEDULES .. destination, due, id)
  correct(destination)
end

-- The states in whose lists the task is.
local function listed_ends(id)
  local ends = {}
  for _, state in ipairs(FINAL) do
    if redis.call('ZSCORE', ENDED[state], id) then ends[#ends + 1] = state end
  end
  return ends
end

-- A page of a hash or a zset: {name, value, ...}.
local function scan(verb, key)
  local found = redis.call(verb, key, page_cursor, 'COUNT', PAGE)
  page_cursor = found[1]
  return found[2]
end

local function walk_hash(key, judge_field)
  local found = scan('HSCAN', key)
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
  local found = scan('ZSCAN', key)
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

-- Walks over names that may be any text.
local function walk_names(verb, key, judge_name)
  local found = scan(verb, key)
  for i = 1, #found, 2 do judge_name(found[i], found[i + 1]) end
end

local function judge_bodiless(id, flaw, remove)
  if redis.call('HEXISTS', BODIES, id) == 0 and find(flaw, id) then remove() end
end
