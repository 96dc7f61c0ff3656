-- Gives the store an id, unless it has one. Runs at `maxmemory` as well: nothing is handed out before the id is known.
--
-- KEYS    1 the store
-- ARGV    2 the id; 3 the lowest task id that may have been drawn here; 0: any
-- returns the id that the store has now
redis.call('HSETNX', KEYS[1], 'id', ARGV[2])
redis.call('HSETNX', KEYS[1], 'since', ARGV[3])
return redis.call('HGET', KEYS[1], 'id')
