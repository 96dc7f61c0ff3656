-- When tasks of a lane expire. In most lanes none does: that is asked once a call, and nothing is
-- done for a single task then.
-- uses: keys
local FARTHEST = 9007199254740991

local some_expire

local function has_expiries()
  if some_expire == nil then some_expire = redis.call('EXISTS', EXPIRIES) == 1 end
  return some_expire
end

-- Notes when a task that waits for `due` expires: `after` ms later, or never.
local function set_expiry(id, due, after)
  if after then
    redis.call('ZADD', EXPIRIES, math.min(due + after + 1, FARTHEST), id)
    some_expire = true
  elseif has_expiries() then
    redis.call('ZREM', EXPIRIES, id)
  end
end

-- Notes that a task waits (1) or is leased (-1): only what waits expires.
local function turn_expiry(id, sign)
  local expires = has_expiries() and redis.call('ZSCORE', EXPIRIES, id)
  if expires then redis.call('ZADD', EXPIRIES, sign * math.abs(tonumber(expires)), id) end
end
