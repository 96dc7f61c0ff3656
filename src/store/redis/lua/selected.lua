-- Goes before the text of cancel.lua or reschedule.lua, if the caller has selected the task by what
-- it read of it. If the task has changed since, the script changes nothing and returns nil.
--
-- ARGV    2 id; the last four: state, due ms, destination and outcome, as summaries.lua shows them.
--         They are removed, so the text behind this one finds its own arguments.
-- uses: now, keys, entry, record, lease, where
local outcome, destination = table.remove(ARGV), table.remove(ARGV)
local due, state = tonumber(table.remove(ARGV)), table.remove(ARGV)
local head = redis.call('HGET', BODIES, ARGV[2])
if not head or destination_of(head) ~= destination then return nil end
local raw, until_ms, waits_for = where(ARGV[2], head)
local place = raw == '' and fresh_entry(destination) or read_entry(raw)
if not place or place.outcome ~= outcome then return nil end
until_ms = tonumber(until_ms)
if (ENDED[place.mark] and place.mark or live_state(until_ms)) ~= state then return nil end
local present = due_of(head)
if state == 'scheduled' then
  present = until_ms and math.min(until_ms, now) or tonumber(waits_for) or present
end
if present ~= due then return nil end
