-- How long leases last.
-- uses: constants, now, keys

local function lease_lasts(deadline)
  return deadline ~= nil and deadline > now and deadline <= now + FURTHEST_DEADLINE_MS
end

local function deadline_of(id)
  return tonumber(redis.call('ZSCORE', LEASED, id) or nil)
end

-- The state of a live task, as a caller sees it.
local function live_state(deadline)
  return lease_lasts(deadline) and 'leased' or 'scheduled'
end
