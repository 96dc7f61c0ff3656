-- Draws ids: a block, and a reserve that follows it. They increase, and are never below Unix
-- seconds * 1,000,000.
--
-- KEYS    1 the last id drawn; 2 "<run> <base>": the run of the server that drew it, and the id
--         from which reserves count while the counter is ahead of the clock
-- ARGV    1 now in Unix ms (0: the server's TIME); 2 the size of the block; 3 the wanted size of
--         the reserve; 4 the highest id that the caller has drawn; 5 how far to skip ahead in a new
--         run; 6 how far reserves may bring the counter ahead of the clock, or of the base
-- returns {the last id drawn, as text; the size of the reserve}
--
-- After a restart or a failover the counter may have lost its last increments, while ids above it
-- are still in use. So the first draw in each run skips ahead, of whichever instance. The script
-- asks its own server for the run: a caller may not know yet that its command was redirected.
-- uses: now
local skip, ahead = tonumber(ARGV[5]), tonumber(ARGV[6])
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local floor = math.floor(now / 1000) * 1000000
local last = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), floor, tonumber(ARGV[4]))
local known_run, base = string.match(redis.call('GET', KEYS[2]) or '', '^(%x+) (%d+)$')
base = tonumber(base or 0)
local is_new_run = known_run ~= run
if is_new_run then last = last + skip end
-- An import or a clock that was set back may also put the counter far ahead of the clock.
if is_new_run or last > math.max(floor, base) + ahead + skip then
  base = last
  redis.call('SET', KEYS[2], run .. ' ' .. string.format('%.0f', base))
end
last = last + tonumber(ARGV[2])
local room = math.max(floor, base) + ahead - last
local reserve = math.max(0, math.min(tonumber(ARGV[3]), room))
last = string.format('%.0f', last + reserve)
redis.call('SET', KEYS[1], last)
return { last, reserve }
