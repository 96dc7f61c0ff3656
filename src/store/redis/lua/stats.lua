-- Counts one lane by state, from the structures themselves. Changes nothing.
--
-- returns {scheduled, leased, delivered, dead, cancelled, expired, earliest due ms of a waiting
--         task or ''}
-- uses: keys
local scheduled = redis.call('ZCARD', SCHEDULES .. '@pull')
for _, destination in ipairs(redis.call('ZRANGE', DESTINATIONS, 0, -1)) do
  scheduled = scheduled + redis.call('ZCARD', SCHEDULES .. destination)
end
local answer = { scheduled, redis.call('ZCARD', LEASED) }
for _, state in ipairs({ 'delivered', 'dead', 'cancelled', 'expired' }) do
  answer[#answer + 1] = redis.call('ZCARD', ENDED[state])
end
local pulled = redis.call('ZRANGE', SCHEDULES .. '@pull', 0, 0, 'WITHSCORES')[2]
local called = redis.call('ZRANGE', DESTINATIONS, 0, 0, 'WITHSCORES')[2]
local earliest = pulled and called and math.min(tonumber(pulled), tonumber(called))
  or tonumber(pulled or called or nil)
answer[#answer + 1] = earliest or ''
return answer
