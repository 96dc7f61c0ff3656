-- Removes tasks that are not leased, whatever their state; if the lane is empty then, its
-- idempotency keys too. If these were all, marks a cancel on a page of the leased tasks.
-- scheduled | delivered | dead | cancelled | expired -> (nothing)
-- leased -> leased, cancel pending
--
-- ARGV    2 at most this many (up to 1,000); 3 where the page begins: '0', or as the last call said
-- returns {how many were removed, how many were marked, where the next page begins, or '0'}
-- uses: constants, now, keys, entry, entries, schedule, forget
local most, total = tonumber(ARGV[2]), 0

-- Removes tasks by the names that were found in a set.
local function clear(key, found)
  local count = forget(found)
  if count > 0 then redis.call('ZREM', key, unpack(found, 1, count)) end
  total = total + count
  -- The rest has to wait for another call.
  if count < #found then most = total end
end

local function clear_first(key)
  if total < most then clear(key, redis.call('ZRANGE', key, 0, most - total - 1)) end
end

clear_first(SCHEDULES .. '@pull')
for _, destination in ipairs(redis.call('ZRANGE', DESTINATIONS, 0, most)) do
  clear_first(SCHEDULES .. destination)
  correct(destination)
end
for _, state in ipairs({ 'delivered', 'dead', 'cancelled', 'expired' }) do
  clear_first(ENDED[state])
end
-- An expired lease protects nothing.
for _, range in ipairs({ { '-inf', now }, { '(' .. (now + FURTHEST_DEADLINE_MS), '+inf' } }) do
  if total < most then
    clear(LEASED, redis.call('ZRANGEBYSCORE', LEASED, range[1], range[2], 'LIMIT', 0, most - total))
  end
end
local cursor, marked = ARGV[3], 0
if total < most then
  -- Unlike a page by rank, this scan meets each task that stays leased, whatever others do.
  local page = redis.call('ZSCAN', LEASED, cursor, 'COUNT', 500)
  cursor = page[1]
  for i = 1, #page[2], 2 do
    local id = page[2][i]
    local raw = redis.call('HGET', ENTRIES, id)
    local entry = raw and read_entry(raw)
    if entry and entry.mark == '-' then
      entry.mark = '!'
      keep(id, entry)
      marked = marked + 1
    end
  end
end
if redis.call('HLEN', BODIES) == 0 then
  redis.call('UNLINK', USED, WINDOWS, OWNERS, EXPIRIES, NOTES)
end
return { total, marked, cursor }
