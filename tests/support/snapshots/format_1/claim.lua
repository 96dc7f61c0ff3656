#!lua flags=allow-oom
local LOCK = KEYS[7]
local FIRST_WANT = 13
local token, takes = ARGV[4], #ARGV >= FIRST_WANT
local has_lock = false
if token ~= '' then
  local holder = redis.call('GET', LOCK)
  has_lock = holder == token
  if takes and holder and not has_lock then
    local left = redis.call('PTTL', LOCK)
    if left >= 0 and left <= 2000 then return { 0, left } end
    has_lock = true
  end
end
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local OFFSETS = KEYS[2]
local DESTINATIONS = KEYS[3]
local SCHEDULES = KEYS[4]
local LEASED = KEYS[6]
local EXPIRIES = KEYS[12]
local some_expire
local function has_expiries()
  if some_expire == nil then some_expire = redis.call('EXISTS', EXPIRIES) == 1 end
  return some_expire
end
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
local FURTHEST_DEADLINE_MS = 46800000
local swept
local may_end = tonumber(ARGV[10])
local is_cut = false
local function first_lease_end()
  return tonumber(redis.call('ZRANGE', LEASED, 0, 0, 'WITHSCORES')[2] or nil)
end
local lease_end = first_lease_end()
local last_end = lease_end and tonumber(redis.call('ZRANGE', LEASED, -1, -1, 'WITHSCORES')[2])
if lease_end and (lease_end <= now or last_end > now + FURTHEST_DEADLINE_MS) then
  local BODIES = KEYS[1]
  local ENTRIES = KEYS[5]
  local ENDED = { delivered = KEYS[8], dead = KEYS[9], cancelled = KEYS[10], expired = KEYS[11] }
  local MAX_RECEIPTS = 4
  local function fresh_entry(destination)
    return {
      attempts = 0, expiries = 0, mark = '-', lease = '-', current = '*', past = '*',
      destination = destination, outcome = '',
    }
  end
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
      entry.attempts, entry.expiries, entry.mark, entry.lease, entry.current, entry.past,
      entry.destination, entry.outcome,
    }, ' ')
  end
  local function retire_receipt(entry, most)
    local kept = {}
    for receipt in string.gmatch(entry.current .. ',' .. entry.past, '[^,*]+') do
      if #kept == most then break end
      kept[#kept + 1] = receipt
    end
    entry.current, entry.past = '*', kept[1] and table.concat(kept, ',') or '*'
  end
  local function returns_to(entry)
    return tonumber(string.match(entry.lease, '^m(%d+)$'))
  end
  local function destination_of(record)
    return (string.match(record, '^1 %d+ %d+ (%S+) '))
  end
  local function keep(id, entry)
    redis.call('HSET', ENTRIES, id, write_entry(entry))
  end
  local function turn_expiry(id, sign)
    local expires = has_expiries() and redis.call('ZSCORE', EXPIRIES, id)
    if expires then redis.call('ZADD', EXPIRIES, sign * math.abs(tonumber(expires)), id) end
  end
  local function schedule(id, destination, due)
    redis.call('ZADD', SCHEDULES .. destination, due, id)
    if destination ~= '@pull' then
      redis.call('ZADD', DESTINATIONS, 'LT', due, destination)
    end
  end
  local UNREADABLE = 'record cannot be read'
  local function finish(id, entry, state)
    entry.mark, entry.lease = state, '-'
    if state ~= 'dead' then entry.past = '*' end
    redis.call('ZADD', ENDED[state], now, id)
    if has_expiries() then redis.call('ZREM', EXPIRIES, id) end
    keep(id, entry)
  end
  local function die(id, entry)
    local function write_record(due, created, destination, options, content)
      local tail = destination .. ' ' .. options .. '\n' .. content
      return '1 ' .. due .. ' ' .. created .. ' ' .. tail, tail
    end
    local function read_record(record)
      return string.match(record, '^1 (%d+) (%d+) (%S+) ([^\n]*)\n()')
    end
    local function read_options(options)
      if not options or options == '-' then return nil end
      local is_json, asked = pcall(cjson.decode, options)
      return is_json and type(asked) == 'table' and asked or nil
    end
    local function origin_of(options)
      return options and string.match(options, '^{"origin":"(%x+)"')
    end
    local function with_origin(options, origin)
      if not origin then return options end
      local field = '{"origin":"' .. origin .. '"'
      return options == '-' and field .. '}' or field .. ',' .. string.sub(options, 2)
    end
    local function call_of(options)
      local asked = read_options(options)
      local call = asked and asked.on_dead
      return type(call) == 'table' and type(call.task_id) == 'number' and call or nil
    end
    finish(id, entry, 'dead')
    local record = redis.call('HGET', BODIES, id) or ''
    local _, _, _, options, content_at = read_record(record)
    local call = call_of(options)
    if not call or type(call.sn) ~= 'string' then return false end
    local call_id = string.format('%.0f', call.task_id)
    local topic = string.match(BODIES, '{(.*):%d+}$')
    local content = '{"sn":' .. cjson.encode(call.sn) .. ',"url":' .. cjson.encode(call.url)
      .. ',"task_id":' .. id .. ',"topic":' .. cjson.encode(topic) .. ',"attempts":' .. entry.attempts
      .. ',"outcome":' .. cjson.encode(entry.outcome)
      .. ',"content":' .. cjson.encode(string.sub(record, content_at)) .. '}'
    local call_record = write_record(now, now, call.sn, with_origin('-', origin_of(options)), content)
    if redis.call('HSETNX', BODIES, call_id, call_record) == 0 then return false end
    schedule(call_id, call.sn, now)
    return true
  end
  local function bury(id, entry)
    entry.outcome = UNREADABLE
    finish(id, entry, 'dead')
  end
  local MAX_EXPIRIES = 16
  local LEASE_RAN_OUT = 'lease ran out'
  local function give_back(id, entry)
    local due = returns_to(entry)
    if not due or entry.mark == '!' then return false end
    entry.lease = '-'
    retire_receipt(entry, MAX_RECEIPTS)
    keep(id, entry)
    schedule(id, entry.destination, due)
    turn_expiry(id, 1)
    return due
  end
  local function sweep_one(id, deadline)
    local raw = redis.call('HGET', ENTRIES, id)
    local entry = raw and read_entry(raw)
    redis.call('ZREM', LEASED, id)
    if not entry then
      local record = redis.call('HGET', BODIES, id)
      local destination = record and destination_of(record)
      entry = fresh_entry(destination or '-')
      if not destination then
        bury(id, entry)
        return 'push_lease', 'unreadable'
      end
    end
    if give_back(id, entry) then return nil end
    local lease = entry.lease == 'c' and 'pull_lease' or 'push_lease'
    entry.expiries = entry.expiries + 1
    entry.outcome = LEASE_RAN_OUT
    if entry.mark == '!' then
      finish(id, entry, 'cancelled')
      return lease, 'cancelled'
    elseif entry.expiries >= MAX_EXPIRIES then
      die(id, entry)
      return lease, 'leases_ran_out'
    else
      schedule(id, entry.destination, math.min(deadline, now))
      turn_expiry(id, 1)
      keep(id, entry)
      return lease
    end
  end
  local SWEPT = {
    push_lease = 1, pull_lease = 2, cancelled = 3, leases_ran_out = 4, unreadable = 5, expired = 6,
    misfired_expired = 7, misfired_dead = 8,
  }
  local function tally(what)
    swept = swept or { 0, 0, 0, 0, 0, 0, 0, 0 }
    swept[SWEPT[what]] = swept[SWEPT[what]] + 1
  end
  local function sweep_and_count(id, deadline)
    local lease, ended = sweep_one(id, tonumber(deadline))
    if lease then tally(lease) end
    if ended then tally(ended) end
  end
  local function sweep()
    local most = tonumber(ARGV[7])
    local passed = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
    for i = 1, #passed, 2 do
      sweep_and_count(passed[i], passed[i + 1])
    end
    local too_far = redis.call('ZRANGEBYSCORE', LEASED, '(' .. (now + FURTHEST_DEADLINE_MS), '+inf',
      'WITHSCORES', 'LIMIT', 0, most - #passed / 2)
    for i = 1, #too_far, 2 do
      sweep_and_count(too_far[i], too_far[i + 1])
    end
  end
  sweep()
  lease_end = first_lease_end()
end
local expired = has_expiries()
  and redis.call('ZRANGEBYSCORE', EXPIRIES, '(0', now, 'LIMIT', 0, may_end + 1)
if expired and expired[1] then
  local BODIES = KEYS[1]
  local ENTRIES = KEYS[5]
  local ENDED = { delivered = KEYS[8], dead = KEYS[9], cancelled = KEYS[10], expired = KEYS[11] }
  local function fresh_entry(destination)
    return {
      attempts = 0, expiries = 0, mark = '-', lease = '-', current = '*', past = '*',
      destination = destination, outcome = '',
    }
  end
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
      entry.attempts, entry.expiries, entry.mark, entry.lease, entry.current, entry.past,
      entry.destination, entry.outcome,
    }, ' ')
  end
  local function destination_of(record)
    return (string.match(record, '^1 %d+ %d+ (%S+) '))
  end
  local function entry_or_fresh(id, destination)
    local raw = redis.call('HGET', ENTRIES, id)
    return raw and read_entry(raw) or fresh_entry(destination)
  end
  local function keep(id, entry)
    redis.call('HSET', ENTRIES, id, write_entry(entry))
  end
  local function finish(id, entry, state)
    entry.mark, entry.lease = state, '-'
    if state ~= 'dead' then entry.past = '*' end
    redis.call('ZADD', ENDED[state], now, id)
    if has_expiries() then redis.call('ZREM', EXPIRIES, id) end
    keep(id, entry)
  end
  local EXPIRED, MISFIRED = 'not delivered in time', 'fell due while the topic was paused'
  local SWEPT = {
    push_lease = 1, pull_lease = 2, cancelled = 3, leases_ran_out = 4, unreadable = 5, expired = 6,
    misfired_expired = 7, misfired_dead = 8,
  }
  local function tally(what)
    swept = swept or { 0, 0, 0, 0, 0, 0, 0, 0 }
    swept[SWEPT[what]] = swept[SWEPT[what]] + 1
  end
  local function expire(id, entry, outcome)
    entry.outcome, entry.current, entry.past = outcome, '*', '*'
    finish(id, entry, 'expired')
  end
  local function end_expired(expired)
    local touched, read_bytes = {}, 0
    for _, id in ipairs(expired) do
      if may_end == 0 or read_bytes >= tonumber(ARGV[8]) then
        is_cut = true
        break
      end
      local entry = entry_or_fresh(id, nil)
      if not entry.destination then
        local record = redis.call('HGET', BODIES, id) or ''
        entry.destination = destination_of(record)
        read_bytes = read_bytes + #record
      end
      if entry.destination and redis.call('ZREM', SCHEDULES .. entry.destination, id) == 1 then
        touched[entry.destination] = true
        expire(id, entry, EXPIRED)
        tally('expired')
      else
        redis.call('ZREM', EXPIRIES, id)
      end
      may_end = may_end - 1
    end
    for destination in pairs(touched) do correct(destination) end
  end
  end_expired(expired)
end
local first_due
if is_cut or ARGV[11] ~= '' then
  local BODIES = KEYS[1]
  local ENTRIES = KEYS[5]
  local ENDED = { delivered = KEYS[8], dead = KEYS[9], cancelled = KEYS[10], expired = KEYS[11] }
  local function fresh_entry(destination)
    return {
      attempts = 0, expiries = 0, mark = '-', lease = '-', current = '*', past = '*',
      destination = destination, outcome = '',
    }
  end
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
      entry.attempts, entry.expiries, entry.mark, entry.lease, entry.current, entry.past,
      entry.destination, entry.outcome,
    }, ' ')
  end
  local function entry_or_fresh(id, destination)
    local raw = redis.call('HGET', ENTRIES, id)
    return raw and read_entry(raw) or fresh_entry(destination)
  end
  local function keep(id, entry)
    redis.call('HSET', ENTRIES, id, write_entry(entry))
  end
  local function schedule(id, destination, due)
    redis.call('ZADD', SCHEDULES .. destination, due, id)
    if destination ~= '@pull' then
      redis.call('ZADD', DESTINATIONS, 'LT', due, destination)
    end
  end
  local function finish(id, entry, state)
    entry.mark, entry.lease = state, '-'
    if state ~= 'dead' then entry.past = '*' end
    redis.call('ZADD', ENDED[state], now, id)
    if has_expiries() then redis.call('ZREM', EXPIRIES, id) end
    keep(id, entry)
  end
  local function die(id, entry)
    local function write_record(due, created, destination, options, content)
      local tail = destination .. ' ' .. options .. '\n' .. content
      return '1 ' .. due .. ' ' .. created .. ' ' .. tail, tail
    end
    local function read_record(record)
      return string.match(record, '^1 (%d+) (%d+) (%S+) ([^\n]*)\n()')
    end
    local function read_options(options)
      if not options or options == '-' then return nil end
      local is_json, asked = pcall(cjson.decode, options)
      return is_json and type(asked) == 'table' and asked or nil
    end
    local function origin_of(options)
      return options and string.match(options, '^{"origin":"(%x+)"')
    end
    local function with_origin(options, origin)
      if not origin then return options end
      local field = '{"origin":"' .. origin .. '"'
      return options == '-' and field .. '}' or field .. ',' .. string.sub(options, 2)
    end
    local function call_of(options)
      local asked = read_options(options)
      local call = asked and asked.on_dead
      return type(call) == 'table' and type(call.task_id) == 'number' and call or nil
    end
    finish(id, entry, 'dead')
    local record = redis.call('HGET', BODIES, id) or ''
    local _, _, _, options, content_at = read_record(record)
    local call = call_of(options)
    if not call or type(call.sn) ~= 'string' then return false end
    local call_id = string.format('%.0f', call.task_id)
    local topic = string.match(BODIES, '{(.*):%d+}$')
    local content = '{"sn":' .. cjson.encode(call.sn) .. ',"url":' .. cjson.encode(call.url)
      .. ',"task_id":' .. id .. ',"topic":' .. cjson.encode(topic) .. ',"attempts":' .. entry.attempts
      .. ',"outcome":' .. cjson.encode(entry.outcome)
      .. ',"content":' .. cjson.encode(string.sub(record, content_at)) .. '}'
    local call_record = write_record(now, now, call.sn, with_origin('-', origin_of(options)), content)
    if redis.call('HSETNX', BODIES, call_id, call_record) == 0 then return false end
    schedule(call_id, call.sn, now)
    return true
  end
  local EXPIRED, MISFIRED = 'not delivered in time', 'fell due while the topic was paused'
  local SWEPT = {
    push_lease = 1, pull_lease = 2, cancelled = 3, leases_ran_out = 4, unreadable = 5, expired = 6,
    misfired_expired = 7, misfired_dead = 8,
  }
  local function tally(what)
    swept = swept or { 0, 0, 0, 0, 0, 0, 0, 0 }
    swept[SWEPT[what]] = swept[SWEPT[what]] + 1
  end
  local function expire(id, entry, outcome)
    entry.outcome, entry.current, entry.past = outcome, '*', '*'
    finish(id, entry, 'expired')
  end
  local misfires = {}
  for from, to, becomes in string.gmatch(ARGV[11], '(%S+) (%S+) (%S+)') do
    misfires[#misfires + 1] = { from = tonumber(from), to = tonumber(to), becomes = becomes }
  end
  local function end_misfired(destination)
    local key = SCHEDULES .. destination
    for _, misfire in ipairs(misfires) do
      local ids = redis.call('ZRANGEBYSCORE', key, misfire.from, math.min(misfire.to, now),
        'LIMIT', 0, may_end + 1)
      for _, id in ipairs(ids) do
        if may_end == 0 then
          is_cut = true
          return
        end
        redis.call('ZREM', key, id)
        local entry = entry_or_fresh(id, destination)
        if misfire.becomes == 'dead' then
          entry.outcome = MISFIRED
          die(id, entry)
        else
          expire(id, entry, MISFIRED)
        end
        tally('misfired_' .. misfire.becomes)
        may_end = may_end - 1
      end
    end
  end
  local function is_to_end(id, due)
    for _, misfire in ipairs(misfires) do
      if misfire.from <= due and due <= misfire.to then return true end
    end
    local expires = is_cut and has_expiries() and tonumber(redis.call('ZSCORE', EXPIRIES, id) or nil)
    return expires and expires <= now
  end
  local function due_before_ends(destination, slots)
    local ids = {}
    local due = redis.call('ZRANGEBYSCORE', SCHEDULES .. destination, '-inf', now, 'WITHSCORES',
      'LIMIT', 0, slots)
    for i = 1, #due, 2 do
      if is_to_end(due[i], tonumber(due[i + 1])) then
        is_cut = is_cut or may_end == 0
        break
      end
      ids[#ids + 1] = due[i]
    end
    return ids, #due / 2
  end
  for i = FIRST_WANT, #ARGV, 2 do end_misfired(ARGV[i]) end
  first_due = due_before_ends
end
local wants, is_due = {}, false
for i = FIRST_WANT, #ARGV, 2 do
  local want = { destination = ARGV[i], slots = tonumber(ARGV[i + 1]), taken = 0 }
  if first_due then
    want.ids, want.found = first_due(want.destination, want.slots)
  else
    want.ids = redis.call('ZRANGEBYSCORE', SCHEDULES .. want.destination, '-inf', now,
      'LIMIT', 0, want.slots)
    want.found = #want.ids
  end
  is_due = is_due or want.ids[1]
  wants[#wants + 1] = want
end
local leased = {}
if is_due then
  local BODIES = KEYS[1]
  local ENTRIES = KEYS[5]
  local MAX_RECEIPTS = 4
  local function fresh_entry(destination)
    return {
      attempts = 0, expiries = 0, mark = '-', lease = '-', current = '*', past = '*',
      destination = destination, outcome = '',
    }
  end
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
      entry.attempts, entry.expiries, entry.mark, entry.lease, entry.current, entry.past,
      entry.destination, entry.outcome,
    }, ' ')
  end
  local function retire_receipt(entry, most)
    local kept = {}
    for receipt in string.gmatch(entry.current .. ',' .. entry.past, '[^,*]+') do
      if #kept == most then break end
      kept[#kept + 1] = receipt
    end
    entry.current, entry.past = '*', kept[1] and table.concat(kept, ',') or '*'
  end
  local function destination_of(record)
    return (string.match(record, '^1 %d+ %d+ (%S+) '))
  end
  local function turn_expiry(id, sign)
    local expires = has_expiries() and redis.call('ZSCORE', EXPIRIES, id)
    if expires then redis.call('ZADD', EXPIRIES, sign * math.abs(tonumber(expires)), id) end
  end
  local receipt, lease_ms = ARGV[2], tonumber(ARGV[3])
  local deadline = string.format('%d', now + lease_ms)
  local bytes, max_bytes = tonumber(ARGV[12]), tonumber(ARGV[8])
  local function read_records(ids)
    local records, count = {}, 0
    while count < #ids do
      local last = math.min(#ids, math.max(8, math.min(2 * count, count + 500)))
      local part = redis.call('HMGET', BODIES, unpack(ids, count + 1, last))
      for i = 1, last - count do
        local record = part[i]
        if record and bytes > 0 and bytes + #record > max_bytes then return records, count end
        count = count + 1
        records[count] = record
        bytes = bytes + (record and #record or 0)
      end
    end
    return records, count
  end
  local function end_unreadable(id, record, destination)
    local ENDED = { delivered = KEYS[8], dead = KEYS[9], cancelled = KEYS[10], expired = KEYS[11] }
    local function entry_or_fresh(id, destination)
      local raw = redis.call('HGET', ENTRIES, id)
      return raw and read_entry(raw) or fresh_entry(destination)
    end
    local function keep(id, entry)
      redis.call('HSET', ENTRIES, id, write_entry(entry))
    end
    local UNREADABLE = 'record cannot be read'
    local function finish(id, entry, state)
      entry.mark, entry.lease = state, '-'
      if state ~= 'dead' then entry.past = '*' end
      redis.call('ZADD', ENDED[state], now, id)
      if has_expiries() then redis.call('ZREM', EXPIRIES, id) end
      keep(id, entry)
    end
    local function bury(id, entry)
      entry.outcome = UNREADABLE
      finish(id, entry, 'dead')
    end
    local SWEPT = {
      push_lease = 1, pull_lease = 2, cancelled = 3, leases_ran_out = 4, unreadable = 5, expired = 6,
      misfired_expired = 7, misfired_dead = 8,
    }
    local function tally(what)
      swept = swept or { 0, 0, 0, 0, 0, 0, 0, 0 }
      swept[SWEPT[what]] = swept[SWEPT[what]] + 1
    end
    local entry = entry_or_fresh(id, destination)
    bury(id, entry)
    tally('unreadable')
    local size = #leased
    leased[size + 1], leased[size + 2], leased[size + 3] = id, entry.attempts, record
  end
  local function leased_entry(raw, destination)
    local entry = raw and read_entry(raw) or fresh_entry(destination)
    entry.attempts = entry.attempts + 1
    retire_receipt(entry, MAX_RECEIPTS - 1)
    entry.current, entry.lease = receipt, destination == '@pull' and 'c' or 'w'
    return write_entry(entry), entry.attempts
  end
  local function lease(ids, records, destination, first, last)
    local raw = redis.call('HMGET', ENTRIES, unpack(ids, first, last))
    local at_first = leased_entry(false, destination)
    local deadlines, entries = {}, {}
    for i = first, last do
      local entry, attempt = at_first, 1
      if raw[i - first + 1] then entry, attempt = leased_entry(raw[i - first + 1], destination) end
      local id, at, size = ids[i], 2 * (i - first), #leased
      deadlines[at + 1], deadlines[at + 2] = deadline, id
      entries[at + 1], entries[at + 2] = id, entry
      leased[size + 1], leased[size + 2], leased[size + 3] = id, attempt, records[i]
      if has_expiries() then turn_expiry(ids[i], -1) end
    end
    redis.call('ZADD', LEASED, unpack(deadlines))
    redis.call('HSET', ENTRIES, unpack(entries))
    lease_end = math.min(lease_end or math.huge, now + lease_ms)
  end
  for _, want in ipairs(wants) do
    local destination = want.destination
    local records, taken = read_records(want.ids)
    if taken > 0 then
      want.taken = taken
      want.offset = redis.call('ZSCORE', SCHEDULES .. destination, want.ids[taken])
      local good_ids, good_records = {}, {}
      for i = 1, taken do
        local id, record = want.ids[i], records[i]
        if record and destination_of(record) then
          good_ids[#good_ids + 1] = id
          good_records[#good_records + 1] = record
        else
          end_unreadable(id, record, destination)
        end
      end
      for first = 1, #good_ids, 500 do
        lease(good_ids, good_records, destination, first, math.min(first + 499, #good_ids))
      end
      redis.call('ZREMRANGEBYRANK', SCHEDULES .. destination, 0, taken - 1)
    end
  end
end
local cut = false
for _, want in ipairs(wants) do
  cut = cut or want.taken == want.slots or want.taken < want.found
  if correct(want.destination) and want.offset then
    redis.call('HSET', OFFSETS, want.destination, want.offset)
  end
end
local due = redis.call('ZRANGEBYSCORE', DESTINATIONS, '-inf', now, 'LIMIT', ARGV[6], ARGV[9])
local later = redis.call('ZRANGEBYSCORE', DESTINATIONS, '(' .. now, '+inf', 'WITHSCORES',
  'LIMIT', 0, 1)
local next_moment = tonumber(later[2] or nil)
if lease_end then next_moment = math.min(next_moment or lease_end, lease_end) end
if has_expiries() then
  local expires = redis.call('ZRANGEBYSCORE', EXPIRIES, '(0', '+inf', 'WITHSCORES',
    'LIMIT', 0, 1)[2]
  if expires then
    next_moment = math.min(next_moment or math.huge, math.max(now, tonumber(expires)))
  end
end
if is_cut then next_moment = now end
if token ~= '' and takes and ARGV[5] == '1' and cut and #due > 0 then
  redis.call('SET', LOCK, token, 'EX', 2, has_lock and 'XX' or 'NX')
elseif has_lock then
  redis.call('DEL', LOCK)
end
return { 1, now, leased, due, next_moment or '', swept }
