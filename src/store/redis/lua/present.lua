-- Finds which of these tasks the lane has. Changes nothing.
--
-- KEYS    1 bodies
-- ARGV    2.. ids
-- returns the ids that exist
local present = {}
for i = 2, #ARGV do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then present[#present + 1] = ARGV[i] end
end
return present
