-- The lane: its keys, and the moves that several scripts share. This file stands before each lane script.
--
-- KEYS, always these eleven, all of one hash tag {topic:shard}:
--   1 bodies        hash id -> record "1 <due_ms> <created_ms> <destination> <options>\n<content>"
--   2 entries       hash id -> "<attempts> <expiries> <mark> <current> <past> <destination> <outcome>",
--                   from a task's first claim or its end; mark: - (live), ! (cancel pending), or its final state; receipts: * for none
--   3 leased        zset id -> deadline ms
--   4 destinations  zset destination -> its earliest due ms (@pull apart)
--   5 offsets       hash destination -> due ms claimed up to (for eyes and metrics); "#shards" -> lanes of the topic
--   6 lock          string: the claimer's token
--   7..10           zset id -> end ms, of delivered, dead, cancelled, expired
--   11 schedules    prefix of the schedules: zset <prefix><destination>, id -> due ms
-- ARGV[1]: now in Unix ms; 0 means the server's TIME.

local BODIES, ENTRIES, LEASED, DESTINATIONS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local OFFSETS, LOCK = KEYS[5], KEYS[6]
local ENDED = { delivered = KEYS[7], dead = KEYS[8], cancelled = KEYS[9], expired = KEYS[10] }
local SCHEDULES = KEYS[11]

local FURTHEST_DEADLINE_MS = 46800000
local MAX_EXPIRIES = 16
local MAX_RECEIPTS = 4
local LEASE_RAN_OUT = 'lease ran out'
local UNREADABLE = 'record cannot be read'

local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

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
    attempts = 0, expiries = 0, mark = '-', current = '*', past = '*', destination = destination, outcome = '',
  }
end

-- nil, if no version of ours wrote it. Scripts that move several tasks have to go on then: an error would end them half way.
local function read_entry(raw)
  local attempts, expiries, mark, current, past, destination, outcome =
    string.match(raw, '^(%d+) (%d+) (%S+) (%S+) (%S+) (%S+) (.*)$')
  if not attempts then return nil end
  return {
    attempts = tonumber(attempts), expiries = tonumber(expiries), mark = mark,
    current = current, past = past, destination = destination, outcome = outcome,
  }
end

local function write_entry(entry)
  return table.concat({
    entry.attempts, entry.expiries, entry.mark, entry.current, entry.past, entry.destination, entry.outcome,
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

-- Puts a destination's entry right after something left its schedule.
local function correct(destination)
  if destination == '@pull' then return end
  local head = redis.call('ZRANGE', SCHEDULES .. destination, 0, 0, 'WITHSCORES')
  if head[2] then
    redis.call('ZADD', DESTINATIONS, head[2], destination)
  else
    redis.call('ZREM', DESTINATIONS, destination)
  end
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
  entry.mark = state
  if state ~= 'dead' then entry.past = '*' end
  redis.call('ZADD', ENDED[state], now, id)
  keep(id, entry)
end

-- Ends a task of which too much cannot be read. What is stored of it stays.
local function bury(id, entry)
  entry.outcome = UNREADABLE
  finish(id, entry, 'dead')
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
  entry.expiries = entry.expiries + 1
  entry.outcome = LEASE_RAN_OUT
  if entry.mark == '!' then
    finish(id, entry, 'cancelled')
  elseif entry.expiries >= MAX_EXPIRIES then
    finish(id, entry, 'dead')
  else
    schedule(id, entry.destination, math.min(deadline, now))
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
