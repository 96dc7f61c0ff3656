-- Reads tasks without their content. Changes nothing.
--
-- ARGV    2.. ids
-- returns {now, then for each id '' or {head of its record, entry or '', lease deadline or '', due
--         ms or '', end ms or ''}}
-- uses: now, keys, record, where
local answer = { now }
for i = 2, #ARGV do
  local record = redis.call('HGET', BODIES, ARGV[i])
  if record then
    answer[i] = { head_of(record), where(ARGV[i], record) }
  else
    answer[i] = ''
  end
end
return answer
