-- Removes tasks that are not leased, whatever their state; if the lane is empty then, its
-- idempotency keys too. scheduled | delivered | dead | cancelled | expired -> (nothing)
--
-- ARGV    2 at most this many (up to 1,000)
-- returns how many; 0: none is left
-- uses: now, keys, schedule, lease, forget
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
if redis.call('HLEN', BODIES) == 0 then
  redis.call('UNLINK', USED, WINDOWS, OWNERS, EXPIRIES, NOTES)
end
return total
