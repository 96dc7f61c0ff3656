-- Notes that an instance is alive, and lists those that are. Removes those that have been silent
-- for a minute.
--
-- KEYS    1 instances: hash instance -> "<moment ms> <what it says of itself>"
-- ARGV    2 the instance, or '' to list only; 3 what it says of itself
-- returns {moment, what it says, ...} of each instance that was heard of lately
-- uses: constants, now
local KEPT_MS = 60000
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[1], ARGV[2], string.format('%d ', now) .. ARGV[3])
end
local living = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local moment, said = string.match(all[i + 1], '^(%d+) (.*)$')
  -- A moment ahead of the clock was written before the clock was set back.
  local silent = math.abs(now - (tonumber(moment) or 0))
  if silent >= KEPT_MS then
    redis.call('HDEL', KEYS[1], all[i])
  elseif silent < INSTANCE_TTL_MS then
    living[#living + 1] = tonumber(moment)
    living[#living + 1] = said
  end
end
return living
