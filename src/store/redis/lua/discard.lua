-- Removes those of the tasks that ended in a state, with their content.
-- delivered | dead | cancelled | expired -> (nothing)
--
-- ARGV    2 state; 3 '' or '=' and the last outcome of those to be removed; 4.. ids, up to 1,000
-- returns {how many, 1 if some are left}
-- uses: keys, entry, forget
local ended, ids, seen = ENDED[ARGV[2]], {}, {}
local function is_meant(id)
  if ARGV[3] == '' then return true end
  local entry = read_entry(redis.call('HGET', ENTRIES, id) or '')
  return ARGV[3] == '=' .. (entry and entry.outcome or '')
end
for i = 4, #ARGV do
  local id = ARGV[i]
  if not seen[id] and is_meant(id) and redis.call('ZSCORE', ended, id) then
    seen[id] = true
    ids[#ids + 1] = id
  end
end
local count = forget(ids)
if count > 0 then redis.call('ZREM', ended, unpack(ids, 1, count)) end
return { count, count < #ids and 1 or 0 }
