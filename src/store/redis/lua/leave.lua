-- Closes an empty lane, and forgets what it still remembers: idempotency keys, its topic's number
-- of lanes, who is about to open it (see open.lua), and what was claimed up to when.
--
-- returns whether it is empty
-- uses: keys
if redis.call('HLEN', BODIES) > 0 then return 0 end
redis.call('UNLINK', OFFSETS, LOCK, USED, WINDOWS, OWNERS, EXPIRIES, NOTES)
return 1
