-- Has a lane that holds tasks remember another number of lanes, or none, which closes it (see
-- open.lua).
--
-- ARGV    2 the number, or ''
-- returns nothing
-- uses: keys
if redis.call('HLEN', BODIES) == 0 then return end
if ARGV[2] == '' then
  redis.call('HDEL', OFFSETS, '#shards')
else
  redis.call('HSET', OFFSETS, '#shards', ARGV[2])
end
