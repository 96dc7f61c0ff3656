-- Writes something that changes nothing: WAIT, which follows, covers what was written before it. A
-- plain SET would be refused at `maxmemory`, and acks must be confirmed then, too.
--
-- KEYS    1 a key that exists only within this step
-- returns nothing
redis.call('SET', KEYS[1], '')
redis.call('DEL', KEYS[1])
