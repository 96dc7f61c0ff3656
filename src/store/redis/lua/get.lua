-- Reads one task. Changes nothing.
--
-- ARGV    2 id
-- returns {} if there is none, else {now, record, '' or the ms at which an add last set it by its
--         key, entry or '', lease deadline or '', due ms or '', end ms or ''}
-- uses: now, keys, record, owner, where
local record = redis.call('HGET', BODIES, ARGV[2])
if not record then
  return {}
end
local key = key_of(record)
local owner, _, set = read_owner(key and redis.call('HGET', OWNERS, key))
return { now, record, owner == ARGV[2] and set or '', where(ARGV[2], record) }
