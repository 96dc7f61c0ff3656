-- Forgets what an empty lane still remembers: idempotency keys, its number of lanes, and what was claimed up to when.
--
-- returns whether it is empty
if redis.call('HLEN', BODIES) > 0 then return 0 end
redis.call('UNLINK', OFFSETS, LOCK, USED, WINDOWS, OWNERS, EXPIRIES, NOTES)
return 1
