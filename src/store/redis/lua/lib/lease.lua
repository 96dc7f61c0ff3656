-- How long leases last.
-- uses: now, keys

-- A deadline further away than any lease counts as expired: the clock was set back.
local FURTHEST_DEADLINE_MS = 46800000

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
