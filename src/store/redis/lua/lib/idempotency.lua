-- The codec of the first add with an idempotency key. No other file splits or joins this text.
--
--   "<id of the task> <fingerprint> <end of the window ms> <due ms first answered>
--    <id drawn by that add>"

-- The five fields as text; nil if there is no add.
local function read_used(raw)
  return string.match(raw or '', '^(%d+) (%x+) (%d+) (%d+) (%d+)$')
end

local function write_used(id, fingerprint, till, due, by)
  return string.format('%s %s %.0f %.0f %s', id, fingerprint, till, due, by)
end
