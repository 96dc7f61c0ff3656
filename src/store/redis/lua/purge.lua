-- Removes tasks that ended long ago, with their content, and idempotency keys whose window has
-- ended. delivered | dead | cancelled | expired -> (nothing)
--
-- ARGV    2 state; 3 before this Unix ms; 4 at most this many tasks; 5 at most this many
--         idempotency keys (both up to 1,000); 6 this many delivered, cancelled and expired tasks
--         stay
-- returns {how many tasks, 1 if there may be more of them, how many idempotency keys}
-- uses: now, keys, forget
local ended, most = ENDED[ARGV[2]], tonumber(ARGV[4])
local stay = tonumber(ARGV[6])
if stay > 0 then
  local count = -stay
  for _, state in ipairs({ 'delivered', 'cancelled', 'expired' }) do
    count = count + redis.call('ZCARD', ENDED[state])
  end
  most = math.max(0, math.min(most, count))
end
local ids = redis.call('ZRANGEBYSCORE', ended, '-inf', '(' .. ARGV[3], 'LIMIT', 0, most)
local count = forget(ids)
if count > 0 then redis.call('ZREM', ended, unpack(ids, 1, count)) end
local over = redis.call('ZRANGEBYSCORE', WINDOWS, '-inf', now, 'LIMIT', 0, ARGV[5])
if #over > 0 then
  redis.call('HDEL', USED, unpack(over))
  redis.call('ZREM', WINDOWS, unpack(over))
end
return { count, (count < #ids or #ids == most) and 1 or 0, #over }
