-- Draws a block of ids: increasing, and never below Unix seconds * 1,000,000.
--
-- KEYS    1 the last id drawn
-- ARGV    1 now in Unix ms (0: the server's TIME); 2 how many; 3 how far to skip ahead first (after
--         a restart or a failover the counter may have lost its last increments, while ids above it
--         are still in use)
-- returns the last id of the block, as text
-- uses: now
local floor = math.floor(now / 1000) * 1000000
local last = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), floor)
last = last + tonumber(ARGV[3])
redis.call('SET', KEYS[1], string.format('%.0f', last))
redis.call('INCRBY', KEYS[1], ARGV[2])
return redis.call('GET', KEYS[1])
