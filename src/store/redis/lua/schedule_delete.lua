-- Deletes a recurring schedule. Its occurrence: scheduled -> cancelled
--
-- ARGV    2 name; 3 if another store has it: its revision
-- returns 1 if there was one, else 0; 2 if it is not deleted, because it has another revision or is
--         not paused
-- uses: keys, recurring
local name = ARGV[2]
local text = redis.call('HGET', RECURRING, name)
-- One that cannot be read is deleted too.
local plan = read_recurring(text)
if text and ARGV[3] and not (plan and plan.revision == ARGV[3] and plan.paused ~= '-') then
  return 2
end
-- The pause for a mover has withdrawn what the other store plans again. The rest moves as tasks.
if plan and not ARGV[3] then withdraw(plan) end
redis.call('HDEL', RECURRING, name)
redis.call('ZREM', PLANS, name)
return text and 1 or 0
