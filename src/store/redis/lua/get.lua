-- Reads one task; changes nothing.
--
-- ARGV    2 id
-- returns {} if there is none, else {now, record, entry or '', lease deadline or '', due ms or '', end ms or ''}
local id = ARGV[2]
local record = redis.call('HGET', BODIES, id)
if not record then
  return {}
end
local raw = redis.call('HGET', ENTRIES, id)
local entry = raw and read_entry(raw)
local destination = entry and entry.destination or destination_of(record)
local ended = entry and ENDED[entry.mark]
return {
  now, record, raw or '', redis.call('ZSCORE', LEASED, id) or '',
  redis.call('ZSCORE', SCHEDULES .. destination, id) or '', ended and redis.call('ZSCORE', ended, id) or '',
}
