-- The lane: its keys, and the moves that several scripts share. This file stands before each lane script.
--
-- KEYS, always these sixteen, all of one hash tag {topic:shard}:
--   1 bodies        hash id -> record "1 <due_ms> <created_ms> <destination> <options>\n<content>"
--   2 entries       hash id -> "<attempts> <expiries> <mark> <lease> <current> <past> <destination> <outcome>",
--                   from a task's first claim or its end; mark: - (live), ! (cancel pending), or its final state; receipts: * for none;
--                   lease, who holds it: w (a worker), c (a consumer), r (a receiver that acknowledges later), m<ms> (a mover; it
--                   waits for that moment if it comes back), or - (nobody). Kept when the lease is swept
--   3 leased        zset id -> deadline ms
--   4 destinations  zset destination -> its earliest due ms (@pull apart)
--   5 offsets       hash destination -> due ms claimed up to, while tasks wait for it (for eyes); "#shards" -> lanes of the topic,
--                   "#opening" -> a token (see open.lua)
--   6 lock          string: the claimer's token
--   7..10           zset id -> end ms, of delivered, dead, cancelled, expired
--   11 schedules    prefix of the schedules: zset <prefix><destination>, id -> due ms
--   12 expiries     zset id -> the first ms at which it is not worth delivering any more, below zero while the task is leased;
--                   only of tasks that wait or are leased and have expires_after
--   13 keys         hash key -> "<id of its owner> <id drawn by the add that last set it> <ms at
--   which it did>"
--   14 used         hash idempotency key -> "<id> <fingerprint> <end of its window ms> <due ms first answered> <id drawn by that add>"
--   15 windows      zset idempotency key -> end of its window ms
--   16 notes        hash id -> the last attempts, each a line of JSON
local BODIES, ENTRIES, LEASED, DESTINATIONS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OFFSETS, LOCK = KEYS[5], KEYS[6]
local ENDED = { delivered = KEYS[7], dead = KEYS[8], cancelled = KEYS[9], expired = KEYS[10] }
local SCHEDULES, EXPIRIES = KEYS[11], KEYS[12]
local OWNERS, USED, WINDOWS, NOTES = KEYS[13], KEYS[14], KEYS[15], KEYS[16]

local FURTHEST_DEADLINE_MS = 46800000
local MAX_EXPIRIES = 16
local MAX_RECEIPTS = 4
local LEASE_RAN_OUT = 'lease ran out'
local UNREADABLE = 'record cannot be read'
local FARTHEST = 9007199254740991

-- The first `most` receipts of a comma-separated list; '*' is the empty list, and no receipt.
local function newest(receipts, most)
  local kept = {}
  for receipt in string.gmatch(receipts, '[^,*]+') do
    if #kept == most then break end
    kept[#kept + 1] = receipt
  end
  if #kept == 0 then return '*' end
  return table.concat(kept, ',')
end

-- The entry of a task that was never claimed.
local function fresh_entry(destination)
  return {
    attempts = 0, expiries = 0, mark = '-', lease = '-', current = '*', past = '*', destination = destination, outcome = '',
  }
end

-- nil, if no version of ours wrote it. Scripts that move several tasks have to go on then: an error would end them half way.
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
    entry.attempts, entry.expiries, entry.mark, entry.lease, entry.current, entry.past, entry.destination, entry.outcome,
  }, ' ')
end

-- For the verbs that move one task: nil if it has no entry yet, and an error if that cannot be read.
local function entry_of(id)
  local raw = redis.call('HGET', ENTRIES, id)
  if not raw then return nil end
  return read_entry(raw) or error('the entry of task ' .. id .. ' cannot be read')
end

local function keep(id, entry)
  redis.call('HSET', ENTRIES, id, write_entry(entry))
end

-- The destination named by a record's head; nil for a head of another version.
local function destination_of(record)
  return (string.match(record, '^1 %d+ %d+ (%S+) '))
end

-- What the options of a record's head say; nil if nothing, or if that cannot be read.
local function read_options(options)
  if not options or options == '-' then return nil end
  local is_json, asked = pcall(cjson.decode, options)
  return is_json and type(asked) == 'table' and asked or nil
end

-- The store that the options of a record's head say the task was accepted by first; nil: this one. It always comes first in them.
local function origin_of(options)
  return options and string.match(options, '^{"origin":"(%x+)"')
end

-- The key in the head of a task's record, if it has one.
local function key_of(record)
  local asked = read_options(string.match(record, '^1 %d+ %d+ %S+ ([^\n]*)\n'))
  return asked and type(asked.key) == 'string' and asked.key or nil
end

local some_expire

-- Whether any task of the lane expires. In most lanes none does: this is asked once a call, and nothing is done for a single task then.
local function has_expiries()
  if some_expire == nil then some_expire = redis.call('EXISTS', EXPIRIES) == 1 end
  return some_expire
end

-- Notes when a task that waits, due then by its record, expires: `after` ms later, or never.
local function set_expiry(id, due, after)
  if after then
    redis.call('ZADD', EXPIRIES, math.min(due + after + 1, FARTHEST), id)
    some_expire = true
  elseif has_expiries() then
    redis.call('ZREM', EXPIRIES, id)
  end
end

-- How long after its due moment a task expires, in ms, as the options of its record say; nil: never.
local function expires_after(options)
  local asked = read_options(options)
  local span = asked and asked.expires_after
  return type(span) == 'string' and tonumber(string.match(span, '^(%d+)ms$')) or nil
end

-- Notes that a task waits (1) or is leased (-1): only what waits expires.
local function turn_expiry(id, sign)
  local expires = has_expiries() and redis.call('ZSCORE', EXPIRIES, id)
  if expires then redis.call('ZADD', EXPIRIES, sign * math.abs(tonumber(expires)), id) end
end

local function lease_lasts(deadline)
  return deadline ~= nil and deadline > now and deadline <= now + FURTHEST_DEADLINE_MS
end

local function deadline_of(id)
  return tonumber(redis.call('ZSCORE', LEASED, id) or nil)
end

-- The state of a live task, as a caller sees it.
local function live_state(deadline)
  return lease_lasts(deadline) and 'leased' or 'scheduled'
end

-- Puts a destination's entry right after something left its schedule. One for which nothing waits any more is forgotten: callers may name
-- any number of hosts. Answers whether it is known.
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

-- Takes a live task off its lease or its schedule.
local function lift(id, destination)
  if redis.call('ZREM', LEASED, id) == 0 then
    unschedule(id, destination)
  end
end

local function finish(id, entry, state)
  entry.mark, entry.lease = state, '-'
  if state ~= 'dead' then entry.past = '*' end
  redis.call('ZADD', ENDED[state], now, id)
  if has_expiries() then redis.call('ZREM', EXPIRIES, id) end
  keep(id, entry)
end

-- The body of the call for a dead task. Numbers of 16 digits are no matter for cjson.
local function obituary(id, entry, call, content)
  local topic = string.match(BODIES, '{(.*):%d+}$')
  return '{"sn":' .. cjson.encode(call.sn) .. ',"url":' .. cjson.encode(call.url) .. ',"task_id":' .. id
    .. ',"topic":' .. cjson.encode(topic) .. ',"attempts":' .. entry.attempts
    .. ',"outcome":' .. cjson.encode(entry.outcome) .. ',"content":' .. cjson.encode(content) .. '}'
end

-- Ends a task as dead. If it names whom to call then, that is a new task, whose id was drawn with its own, by the same store: it is made once
-- however often the task dies. Answers whether it was made now.
local function die(id, entry)
  finish(id, entry, 'dead')
  local record = redis.call('HGET', BODIES, id) or ''
  local options, content_at = string.match(record, '^1 %d+ %d+ %S+ ([^\n]*)\n()')
  local asked = read_options(options)
  local call = asked and asked.on_dead
  if type(call) ~= 'table' or type(call.task_id) ~= 'number' or type(call.sn) ~= 'string' then return false end
  local call_id = string.format('%.0f', call.task_id)
  local body = obituary(id, entry, call, string.sub(record, content_at))
  local origin = origin_of(options)
  local call_options = origin and '{"origin":"' .. origin .. '"}' or '-'
  local call_record = '1 ' .. now .. ' ' .. now .. ' ' .. call.sn .. ' ' .. call_options .. '\n' .. body
  if redis.call('HSETNX', BODIES, call_id, call_record) == 0 then return false end
  schedule(call_id, call.sn, now)
  return true
end

-- Ends a task of which too much cannot be read. What is stored of it stays.
local function bury(id, entry)
  entry.outcome = UNREADABLE
  finish(id, entry, 'dead')
end

-- What a task that a mover holds waits for if it comes back; nil if no mover holds it.
local function returns_to(entry)
  return tonumber(string.match(entry.lease, '^m(%d+)$'))
end

-- Puts a task that was lent to another store back as it waited before; the lease has been taken off. Answers what it waits for, or false: it was
-- not lent, or a cancel is pending, which ends it as it ends any other.
local function give_back(id, entry)
  local due = returns_to(entry)
  if not due or entry.mark == '!' then return false end
  entry.lease = '-'
  if entry.current ~= '*' then entry.past = newest(entry.current .. ',' .. entry.past, MAX_RECEIPTS) end
  entry.current = '*'
  keep(id, entry)
  schedule(id, entry.destination, due)
  turn_expiry(id, 1)
  return due
end

-- Ends one lease that has run out: back on the schedule, unless a cancel waits or it is a crash loop. A task whose entry cannot
-- be read begins anew, as far as its body says where.
local function sweep_one(id, deadline)
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw)
  redis.call('ZREM', LEASED, id)
  if not entry then
    local record = redis.call('HGET', BODIES, id)
    local destination = record and destination_of(record)
    entry = fresh_entry(destination or '-')
    if not destination then return bury(id, entry) end
  end
  if give_back(id, entry) then return end
  entry.expiries = entry.expiries + 1
  entry.outcome = LEASE_RAN_OUT
  if entry.mark == '!' then
    finish(id, entry, 'cancelled')
  elseif entry.expiries >= MAX_EXPIRIES then
    die(id, entry)
  else
    schedule(id, entry.destination, math.min(deadline, now))
    turn_expiry(id, 1)
    keep(id, entry)
  end
end

-- A verb by hand treats a lease that has run out as scheduled; but if a cancel waited for its end, this is it.
-- Answers whether so.
local function fulfil_pending_cancel(id, deadline)
  local entry = deadline and not lease_lasts(deadline) and entry_of(id)
  if not entry or entry.mark ~= '!' then return false end
  sweep_one(id, deadline)
  return true
end

local function sweep(most)
  local passed = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #passed, 2 do
    sweep_one(passed[i], tonumber(passed[i + 1]))
  end
  local too_far = redis.call('ZRANGEBYSCORE', LEASED, '(' .. (now + FURTHEST_DEADLINE_MS), '+inf', 'WITHSCORES',
    'LIMIT', 0, most - #passed / 2)
  for i = 1, #too_far, 2 do
    sweep_one(too_far[i], tonumber(too_far[i + 1]))
  end
end
