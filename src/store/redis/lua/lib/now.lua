-- The moment at which the script runs, in Unix ms.
--
-- ARGV[1]  now; 0 means the server's TIME
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- A moment as callers write it: "<ms>" (a moment) or "+<ms>" (after now); one in the past is now.
local function read_moment(text)
  local ms = tonumber(text)
  return string.sub(text, 1, 1) == '+' and now + ms or math.max(ms, now)
end
