-- Forgets tasks that ended long ago, bodies and all.    delivered | dead | cancelled | expired -> (nothing)
--
-- ARGV    2 state; 3 before this Unix ms; 4 at most so many (up to 1,000)
-- returns how many
local ids = redis.call('ZRANGEBYSCORE', ENDED[ARGV[2]], '-inf', '(' .. ARGV[3], 'LIMIT', 0, ARGV[4])
if #ids > 0 then
  redis.call('HDEL', BODIES, unpack(ids))
  redis.call('HDEL', ENTRIES, unpack(ids))
  redis.call('ZREM', ENDED[ARGV[2]], unpack(ids))
end
return #ids
