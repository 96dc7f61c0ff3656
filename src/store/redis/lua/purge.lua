-- Removes tasks that ended long ago, with their content, and idempotency keys whose window has
-- ended. delivered | dead | cancelled | expired -> (nothing)
--
-- ARGV    2 state; 3 before this Unix ms; 4 at most this many tasks; 5 at most this many
--         idempotency keys (both up to 1,000)
-- returns {how many tasks, 1 if there may be more of them, how many idempotency keys}
-- uses: now, keys, forget
local ended, most = ENDED[ARGV[2]], tonumber(ARGV[4])
local ids = redis.call('ZRANGEBYSCORE', ended, '-inf', '(' .. ARGV[3], 'LIMIT', 0, most)
local count = forget(ids)
if count > 0 then redis.call('ZREM', ended, unpack(ids, 1, count)) end
local over = redis.call('ZRANGEBYSCORE', WINDOWS, '-inf', now, 'LIMIT', 0, ARGV[5])
if #over > 0 then
  redis.call('HDEL', USED, unpack(over))
  redis.call('ZREM', WINDOWS, unpack(over))
end
return { count, (count < #ids or #ids == most) and 1 or 0, #over }
