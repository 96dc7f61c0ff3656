-- Finds the recurring schedules of a lane that a planner has to look at. Changes nothing.
--
-- ARGV    2 how many of them are left out; 3 at most this many
-- returns {now, names, the earliest first}
-- uses: now, keys
return { now, redis.call('ZRANGEBYSCORE', PLANS, '-inf', now, 'LIMIT', ARGV[2], ARGV[3]) }
