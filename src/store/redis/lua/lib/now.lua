-- The moment at which the script runs, in Unix ms.
--
-- ARGV[1]  now; 0 means the server's TIME
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
