-- Reads one task; changes nothing.
--
-- ARGV    2 id
-- returns {} if there is none, else {now, record, entry or '', lease deadline or '', due ms or '', end ms or ''}
local record = redis.call('HGET', BODIES, ARGV[2])
if not record then
  return {}
end
return { now, record, where(ARGV[2], record) }
