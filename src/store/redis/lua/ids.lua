-- Draws ids: a block, and an id reserve that follows it. They increase, and are never below Unix
-- seconds * 1,000,000.
--
-- KEYS    1 the last id drawn; 2 "<run> <base> <lead>": the run of the server that drew it, the
--         last id where the id reserves of this run begin, and how far it was ahead of the clock
-- ARGV    1 now in Unix ms (0: the server's TIME); 2 the size of the block; 3 the wanted size of
--         the id reserve; 4 the highest id that the caller has drawn; 5 how far to skip ahead in a
--         new run; 6 how far id reserves may bring the counter ahead of the clock and of the lead
-- returns {the last id drawn, as text; the size of the id reserve}
--
-- After a restart or a failover the counter may have lost its last increments, while ids above it
-- are still in use. So the first draw in each run skips ahead, whichever instance requests it. The
-- script asks its own server for the run: a caller may not know yet that its command was
-- redirected. Each promotion changes the replication id, also of a server that was the primary
-- before and did not restart. A server that reports neither has one run forever.
-- uses: now
local skip, ahead = tonumber(ARGV[5]), tonumber(ARGV[6])
local info = redis.call('INFO', 'server', 'replication')
local run = (string.match(info, 'run_id:(%x+)') or '') .. '-'
  .. (string.match(info, 'master_replid:(%x+)') or '')
local floor = math.floor(now / 1000) * 1000000
local counter = string.match(redis.call('GET', KEYS[1]) or '', '^%d+$')
counter = tonumber(counter or -1)
local known_run, base, lead = string.match(redis.call('GET', KEYS[2]) or '',
  '^(%x*%-%x*) (%d+) (%d+)$')
base, lead = tonumber(base or 0), tonumber(lead or 0)
-- A counter that was deleted, reset or damaged has lost ids, too.
local is_new_run = known_run ~= run or counter < base or counter >= 9007199254740992
if counter >= 9007199254740992 then counter = 0 end
local last = math.max(counter, floor, tonumber(ARGV[4]))
if is_new_run then last = math.max(last, floor + ahead) + skip end
-- An import or a clock that was set back may also put the counter far ahead of the clock.
local is_far = last > floor + lead + ahead + skip
local has_caught_up = lead > 0 and last == floor
if is_new_run or is_far or has_caught_up then
  base, lead = last, last - floor
  redis.call('SET', KEYS[2], run .. string.format(' %.0f %.0f', base, lead))
end
last = last + tonumber(ARGV[2])
local room = floor + lead + ahead - last
local reserve = math.max(0, math.min(tonumber(ARGV[3]), room))
last = string.format('%.0f', last + reserve)
redis.call('SET', KEYS[1], last)
return { last, reserve }
