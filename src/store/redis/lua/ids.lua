-- Draws a block of ids. They increase, and are never below Unix seconds * 1,000,000.
--
-- KEYS    1 the last id drawn; 2 "<run> <base> 0": the run of the server that drew it, and the last
--         id before those of this run (earlier versions have another third field)
-- ARGV    1 now in Unix ms (0: the server's TIME); 2 the size of the block; 3 the highest id that
--         the caller has drawn; 4 how far to skip ahead in a new run
-- returns the last id drawn, as text
--
-- After a restart or a failover the counter may have lost its last increments, while ids above it
-- are still in use. So the first draw in each run skips ahead, whichever instance requests it. The
-- script asks its own server for the run: a caller may not know yet that its command was
-- redirected. Each promotion changes the replication id, also of a server that was the primary
-- before and did not restart. A server that reports neither has one run forever.
-- uses: constants, now
local info = redis.call('INFO', 'server', 'replication')
local run = (string.match(info, 'run_id:(%x+)') or '') .. '-'
  .. (string.match(info, 'master_replid:(%x+)') or '')
local floor = math.floor(now / 1000) * 1000000
local counter = string.match(redis.call('GET', KEYS[1]) or '', '^%d+$')
counter = tonumber(counter or -1)
local known_run, base = string.match(redis.call('GET', KEYS[2]) or '', '^(%x*%-%x*) (%d+) %d+$')
-- A counter that was deleted, reset or damaged has lost ids, too.
local is_new_run = known_run ~= run or counter < tonumber(base) or counter > MAX_ID
if counter > MAX_ID then counter = 0 end
local last = math.max(counter, floor, tonumber(ARGV[3]))
if is_new_run then
  last = last + tonumber(ARGV[4])
  redis.call('SET', KEYS[2], run .. string.format(' %.0f 0', last))
end
last = string.format('%.0f', last + tonumber(ARGV[2]))
redis.call('SET', KEYS[1], last)
return last
