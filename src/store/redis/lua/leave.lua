-- Closes a lane without tasks and recurring schedules, and forgets what it still remembers:
-- idempotency keys, its topic's number of lanes, the token of an opening (see lib/open.lua), and
-- the moments claimed up to.
--
-- returns whether it is empty
-- uses: keys
if redis.call('HLEN', BODIES) + redis.call('HLEN', RECURRING) > 0 then return 0 end
redis.call('UNLINK', OFFSETS, LOCK, USED, WINDOWS, OWNERS, EXPIRIES, NOTES)
return 1
