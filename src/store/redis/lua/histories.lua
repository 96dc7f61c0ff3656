-- Finds what a purge would remove from each lane. Changes nothing.
--
-- returns {now, then for each lane {how many were delivered, cancelled or expired; when the first
--         of them ended, or ''; how many idempotency keys have outlived their window; 1 if the
--         lane has recurring schedules, else 0}, or '' if there is nothing}
-- uses: now, lanes
local answer = { now }
for i = 1, #KEYS do
  local tag = string.sub(KEYS[i], tag_at)
  local ended = {
    prefix .. 'DELAY_DELIVERED_TOPIC_TASK' .. tag,
    prefix .. 'DELAY_CANCELLED_TOPIC_TASK' .. tag,
    prefix .. 'DELAY_EXPIRED_TOPIC_TASK' .. tag,
  }
  local windows = prefix .. 'DELAY_WINDOWS_TOPIC_TASK' .. tag
  local recurring = prefix .. 'DELAY_RECURRING_TOPIC_TASK' .. tag
  if redis.call('EXISTS', windows, recurring, unpack(ended)) == 0 then
    answer[i + 1] = ''
  else
    local count, oldest = 0, nil
    for _, key in ipairs(ended) do
      count = count + redis.call('ZCARD', key)
      oldest = earlier(oldest, score_at(key, 0))
    end
    answer[i + 1] = {
      count, oldest or '', redis.call('ZCOUNT', windows, '-inf', now),
      redis.call('EXISTS', recurring),
    }
  end
end
return answer
