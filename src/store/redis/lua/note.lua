-- Writes notes of attempts, for people. Skips tasks that are gone.
--
-- ARGV    2 how many notes a task keeps, the last ones; then for each: id, a line of JSON
-- returns nothing. Refused at maxmemory, because nothing depends on it.
-- uses: keys
local most = tonumber(ARGV[2])
for i = 3, #ARGV, 2 do
  local id = ARGV[i]
  if redis.call('HEXISTS', BODIES, id) == 1 then
    local lines = {}
    for line in string.gmatch(redis.call('HGET', NOTES, id) or '', '[^\n]+') do
      lines[#lines + 1] = line
    end
    lines[#lines + 1] = ARGV[i + 1]
    redis.call('HSET', NOTES, id, table.concat(lines, '\n', math.max(1, #lines - most + 1)))
  end
end
