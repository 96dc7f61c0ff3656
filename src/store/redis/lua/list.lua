-- Reads a page of ids of one state in (moment, id) order. Changes nothing.
--
-- ARGV    2 state; 3 from ms; 4 to ms; 5 after ms ('' for the first page); 6 after id; 7 at most
--         this many
-- returns {id, ms, ...}: per schedule if scheduled (to be merged), otherwise of the state's one set
--
-- Redis orders members with the same score by their text. For ids that is their numerical order,
-- because the clock gives all of them the same number of digits. So the place after (ms, id) is
-- found by binary search.
-- uses: keys
local state, from, to, after_ms, after_id = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local most = tonumber(ARGV[7])

local function first_rank(key)
  if after_ms == '' or tonumber(after_ms) < tonumber(from) then
    return redis.call('ZCOUNT', key, '-inf', '(' .. from)
  end
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. after_ms)
  local high = redis.call('ZCOUNT', key, '-inf', after_ms)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if tonumber(redis.call('ZRANGE', key, middle, middle)[1]) <= tonumber(after_id) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local answer = {}
local function page(key)
  local rank = first_rank(key)
  local found = redis.call('ZRANGE', key, rank, rank + most - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if tonumber(found[i + 1]) > tonumber(to) then break end
    answer[#answer + 1] = found[i]
    answer[#answer + 1] = found[i + 1]
  end
end

if state == 'scheduled' then
  page(SCHEDULES .. '@pull')
  for _, destination in ipairs(redis.call('ZRANGE', DESTINATIONS, 0, -1)) do
    page(SCHEDULES .. destination)
  end
else
  page(state == 'leased' and LEASED or ENDED[state])
end
return answer
