-- Keeps tasks of another store, as they were there.    (nothing) -> scheduled | delivered | dead | cancelled | expired
--
-- ARGV    2 the topic's number of lanes (see open.lua); then for each task: id, created ms, due ms, destination, options, content, state, the moment it waits for or
--         ended at in ms, attempts, outcome, '' or the key that leads to this lane, '' or ms after its due moment at which it expires
-- returns what open.lua answers, or {now, then for each task 'new', 'known' (adopted before), 'own' (this store lends it) or 'taken' (another
--         task's id)}
local function known(id, created, due, content)
  local stored_due, stored_created, stored_content =
    string.match(redis.call('HGET', BODIES, id), '^1 (%d+) (%d+) %S+ [^\n]*\n(.*)$')
  if stored_due ~= due or stored_created ~= created or stored_content ~= content then return 'taken' end
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw)
  return entry and read_lent(entry) and lease_lasts(deadline_of(id)) and 'own' or 'known'
end

local function adopt(id, created, due, destination, options, content, state, moment, attempts, outcome, key, expires)
  local record = '1 ' .. due .. ' ' .. created .. ' ' .. destination .. ' ' .. options .. '\n' .. content
  if redis.call('HSETNX', BODIES, id, record) == 0 then return known(id, created, due, content) end
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
  if key ~= '' then
    local owner = string.match(redis.call('HGET', OWNERS, key) or '', '^(%d+) ')
    local is_pending = owner and redis.call('HEXISTS', BODIES, owner) == 1 and standing(owner)
    if not is_pending then redis.call('HSET', OWNERS, key, id .. ' ' .. id) end
  end
  return 'new'
end

local answer = { now }
for i = 3, #ARGV, 12 do answer[#answer + 1] = adopt(unpack(ARGV, i, i + 11)) end
return answer
