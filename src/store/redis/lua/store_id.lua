-- Gives the store an id and a format, unless it has them. Runs at `maxmemory` too, because no task
-- is handed out before the id is known.
--
-- KEYS    1 the store
-- ARGV    2 the id; 3 the lowest task id that may have been drawn here; 0: any; 4 the format
-- returns the store's id and format now
redis.call('HSETNX', KEYS[1], 'id', ARGV[2])
redis.call('HSETNX', KEYS[1], 'since', ARGV[3])
redis.call('HSETNX', KEYS[1], 'format', ARGV[4])
return redis.call('HMGET', KEYS[1], 'id', 'format')
