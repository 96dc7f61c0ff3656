-- The keys of a lane, all with one hash tag {topic:shard}. A lane script gets those up to the last
-- one that it names, and at least four; store/redis/keys.rs names them in this order.
--
-- KEYS
--   1 bodies        hash id -> record, see record.lua
--   2 offsets       hash destination -> due ms claimed up to, while tasks wait for it (only shown);
--                   "#shards" -> lanes of the topic, "#opening" -> a token (see open.lua)
--   3 destinations  zset destination -> its earliest due ms (without @pull)
--   4 schedules     prefix of the schedules: zset <prefix><destination>, id -> due ms
--   5 entries       hash id -> entry, see entry.lua
--   6 leased        zset id -> deadline ms
--   7 lock          string: the claimer's token, between the claims of a burst
--   8..11           zset id -> end ms, of delivered, dead, cancelled, expired
--   12 expiries     zset id -> the first ms at which it is not worth delivering, negative while the
--                   task is leased; only of waiting or leased tasks with expires_after
--   13 owners       hash key -> owner, see owner.lua
--   14 used         hash idempotency key -> its first add, see idempotency.lua
--   15 windows      zset idempotency key -> end of its window ms
--   16 notes        hash id -> the last attempts, each a line of JSON
--   17 recurring    hash name -> recurring schedule, see recurring.lua
--   18 plans        zset name of a recurring schedule -> ms at which a planner looks at it
local BODIES = KEYS[1]
local OFFSETS = KEYS[2]
local DESTINATIONS = KEYS[3]
local SCHEDULES = KEYS[4]
local ENTRIES = KEYS[5]
local LEASED = KEYS[6]
local LOCK = KEYS[7]
local ENDED = { delivered = KEYS[8], dead = KEYS[9], cancelled = KEYS[10], expired = KEYS[11] }
local EXPIRIES = KEYS[12]
local OWNERS = KEYS[13]
local USED = KEYS[14]
local WINDOWS = KEYS[15]
local NOTES = KEYS[16]
local RECURRING = KEYS[17]
local PLANS = KEYS[18]
