-- Reads a page of ids of one state in (moment, id) order, or in its reverse. Changes nothing.
--
-- ARGV    2 state; 3 from ms; 4 to ms; 5 after ms ('' for the first page); 6 after id; 7 at most
--         this many; 8 'back': the latest first
-- returns {id, ms, ...}: per schedule if scheduled (to be merged), otherwise of the state's one
--         set; the earliest first
--
-- Redis orders members with the same score by their text. For ids that is their numerical order,
-- because the clock gives all of them the same number of digits. So the place of (ms, id) is found
-- by binary search.
-- uses: keys
local state, from, to, after_ms, after_id = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local most, is_back = tonumber(ARGV[7]), ARGV[8] == 'back'

-- How many members come before (ms, id), which counts itself unless the page goes back.
local function place(key, ms, id)
  local low = redis.call('ZCOUNT', key, '-inf', '(' .. ms)
  local high = redis.call('ZCOUNT', key, '-inf', ms)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = tonumber(redis.call('ZRANGE', key, middle, middle)[1])
    if member < id or (member == id and not is_back) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- The ranks of the first and the last member of the page.
local function ranks(key)
  local after = after_ms ~= '' and tonumber(after_ms)
  if is_back then
    local last
    if after and after <= tonumber(to) then
      last = place(key, after_ms, tonumber(after_id)) - 1
    else
      last = redis.call('ZCOUNT', key, '-inf', to) - 1
    end
    return math.max(0, last - most + 1), last
  end
  local first
  if after and after >= tonumber(from) then
    first = place(key, after_ms, tonumber(after_id))
  else
    first = redis.call('ZCOUNT', key, '-inf', '(' .. from)
  end
  return first, first + most - 1
end

local answer = {}
local function page(key)
  local first, last = ranks(key)
  -- Redis takes a negative rank for one from the end.
  if last < first then return end
  local found = redis.call('ZRANGE', key, first, last, 'WITHSCORES')
  for i = 1, #found, 2 do
    local ms = tonumber(found[i + 1])
    if ms >= tonumber(from) and ms <= tonumber(to) then
      answer[#answer + 1] = found[i]
      answer[#answer + 1] = found[i + 1]
    end
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
