-- Sets the number of lanes that a lane with tasks remembers, or removes it, which closes the lane
-- (see lib/open.lua).
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
