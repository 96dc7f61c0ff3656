#!lua
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
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
local is_new_run = known_run ~= run or counter < base or counter >= 9007199254740992
if counter >= 9007199254740992 then counter = 0 end
local last = math.max(counter, floor, tonumber(ARGV[4]))
if is_new_run then last = math.max(last, floor + ahead) + skip end
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
