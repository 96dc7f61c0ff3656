-- Removes those of the tasks that ended in a state, with their content.
-- delivered | dead | cancelled | expired -> (nothing)
--
-- ARGV    2 state; 3.. ids, up to 1,000
-- returns {how many, 1 if some are left}
-- uses: keys, forget
local ended, ids, seen = ENDED[ARGV[2]], {}, {}
for i = 3, #ARGV do
  local id = ARGV[i]
  if not seen[id] and redis.call('ZSCORE', ended, id) then
    seen[id] = true
    ids[#ids + 1] = id
  end
end
local count = forget(ids)
if count > 0 then redis.call('ZREM', ended, unpack(ids, 1, count)) end
return { count, count < #ids and 1 or 0 }
