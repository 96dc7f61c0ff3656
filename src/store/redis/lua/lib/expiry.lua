-- When tasks of a lane expire. Most lanes have no such tasks: that is checked once per call, and
-- then no task costs anything.
-- uses: constants, keys

local some_expire

local function has_expiries()
  if some_expire == nil then some_expire = redis.call('EXISTS', EXPIRIES) == 1 end
  return some_expire
end

-- Lists when a task that waits for `due` expires: `after` ms later, or never.
local function set_expiry(id, due, after)
  if after then
    redis.call('ZADD', EXPIRIES, math.min(due + after + 1, LAST_MOMENT), id)
    some_expire = true
  elseif has_expiries() then
    redis.call('ZREM', EXPIRIES, id)
  end
end

-- Lists that a task waits (1) or is leased (-1): only waiting tasks expire.
local function turn_expiry(id, sign)
  local expires = has_expiries() and redis.call('ZSCORE', EXPIRIES, id)
  if expires then redis.call('ZADD', EXPIRIES, sign * math.abs(tonumber(expires)), id) end
end
