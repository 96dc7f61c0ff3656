#!lua
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local now_text = string.format('%d', now)
local created = ' ' .. now_text .. ' '
local function store(bodies, offsets, destinations, schedules, number, at, last)
  if redis.call('HGET', offsets, '#shards') ~= number then
    local function refusal_of(bodies, offsets, number)
      local asked, token = string.match(number, '^(%d+) ?(.*)$')
      local shards = redis.call('HGET', offsets, '#shards')
      if shards == asked then return nil end
      if shards and redis.call('HLEN', bodies) > 0 then return { 'stale', tonumber(shards) } end
      local opening = redis.call('HGET', offsets, '#opening')
      if opening and opening == token then
        redis.call('HSET', offsets, '#shards', asked)
        redis.call('HDEL', offsets, '#opening')
        return nil
      end
      if not opening then
        local time = redis.call('TIME')
        opening = time[1] .. '.' .. time[2]
        redis.call('HSET', offsets, '#opening', opening)
      end
      return { 'closed', opening }
    end
    local refusal = refusal_of(bodies, offsets, number)
    if refusal then return refusal end
  end
  local known, place = nil, 0
  while at < last do
    local destination, count, first = ARGV[at], tonumber(ARGV[at + 1]), at + 2
    at = first + 3 * count
    local there
    if count > 1 then
      local ids = {}
      for n = 1, count do ids[n] = ARGV[first + 3 * (n - 1)] end
      there = redis.call('HMGET', bodies, unpack(ids))
    end
    local records, scores, size, earliest = {}, {}, 0, math.huge
    for n = 1, count do
      local from = first + 3 * (n - 1)
      local id, moment, tail = ARGV[from], ARGV[from + 1], ARGV[from + 2]
      local due = tonumber(moment)
      if string.byte(moment) == 43 then
        due = now + due
        moment = string.format('%d', due)
      elseif due < now then
        due, moment = now, now_text
      end
      local record, before = '1 ' .. moment .. created .. tail, nil
      if there then
        before = there[n]
      elseif redis.call('HSETNX', bodies, id, record) == 0 then
        before = redis.call('HGET', bodies, id)
      end
      if before then
        local function due_of_same(record, tail)
          local due, stored_tail = string.match(record, '^1 (%d+) %d+ (.*)$')
          return stored_tail == tail and tonumber(due) or nil
        end
        known = known or {}
        known[#known + 1] = place
        known[#known + 1] = due_of_same(before, tail) or -1
      else
        if due < earliest then earliest = due end
        records[size + 1], records[size + 2] = id, record
        scores[size + 1], scores[size + 2] = moment, id
        size = size + 2
      end
      place = place + 1
    end
    if size > 0 then
      if there then redis.call('HSET', bodies, unpack(records)) end
      redis.call('ZADD', schedules .. destination, unpack(scores))
      if destination ~= '@pull' then
        redis.call('ZADD', destinations, 'LT', earliest, destination)
      end
    end
  end
  return known or 0
end
local answer, at = { now }, 2
for k = 1, #KEYS, 4 do
  local first = at + 2
  local last = at + 1 + tonumber(ARGV[at + 1])
  local is_done, result =
    pcall(store, KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[at], first, last)
  if not is_done then
    result = { 'failed', type(result) == 'table' and result.err or tostring(result) }
  end
  answer[#answer + 1] = result
  at = last + 1
end
return answer
