-- The place of a task, for scripts that read. Changes nothing.
-- uses: keys, entry, record

-- The task's entry or '', lease deadline or '', due ms or '', end ms or ''. All are returned even
-- if the record cannot be read.
local function where(id, record)
  local raw = redis.call('HGET', ENTRIES, id)
  local entry = raw and read_entry(raw)
  local destination = entry and entry.destination or destination_of(record)
  local ended = entry and ENDED[entry.mark]
  return raw or '', redis.call('ZSCORE', LEASED, id) or '',
    destination and redis.call('ZSCORE', SCHEDULES .. destination, id) or '',
    ended and redis.call('ZSCORE', ended, id) or ''
end
