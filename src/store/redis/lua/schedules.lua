-- Reads recurring schedules. Changes nothing.
--
-- ARGV    2.. names
-- returns {now, then for each name its record or '', and the ms of its next look or ''}
-- uses: now, keys
local answer = { now }
for i = 2, #ARGV do
  answer[#answer + 1] = redis.call('HGET', RECURRING, ARGV[i]) or ''
  answer[#answer + 1] = redis.call('ZSCORE', PLANS, ARGV[i]) or ''
end
return answer
