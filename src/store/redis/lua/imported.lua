-- Notes from which stores tasks are moved here, and the range of their ids, before they are stored.
--
-- KEYS    1 the store
-- ARGV    2.. for each store: its id ('': unknown), the lowest and the highest id of its tasks
-- returns the previous fields of the store: `from:<store>` -> "<lowest> <highest>", and others
local MOST = 64

local before = redis.call('HGETALL', KEYS[1])
local spans, count = {}, 0
for i = 1, #before, 2 do
  local origin = string.match(before[i], '^from:(%x*)$')
  if origin then
    spans[origin] = before[i + 1]
    count = count + 1
  end
end
for i = 2, #ARGV, 3 do
  local origin, lowest, highest = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  -- Names come from callers: names beyond this number share one field.
  if not spans[origin] and count >= MOST then origin = '' end
  local low, high = string.match(spans[origin] or '', '^(%d+) (%d+)$')
  if not low then count = count + 1 end
  local span = string.format('%.0f %.0f', math.min(lowest, tonumber(low) or lowest),
    math.max(highest, tonumber(high) or highest))
  if spans[origin] ~= span then redis.call('HSET', KEYS[1], 'from:' .. origin, span) end
  spans[origin] = span
end
return before
