-- Sets a lease's deadline. An expired lease that was not superseded is leased again.
-- leased -> leased
--
-- ARGV    2 id; 3 receipt; 4 lease ms from now
-- returns 'done', 'unknown', or the state that makes it stale
-- uses: now, keys, entries, expiry, schedule, lease
local id, receipt, lease_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])
local entry = entry_of(id)
if not entry then
  return redis.call('HEXISTS', BODIES, id) == 1 and 'scheduled' or 'unknown'
end
if ENDED[entry.mark] then
  return entry.mark
end
if entry.current ~= receipt then
  return live_state(deadline_of(id))
end
if not deadline_of(id) then
  unschedule(id, entry.destination)
  turn_expiry(id, -1)
end
redis.call('ZADD', LEASED, now + lease_ms, id)
return 'done'
