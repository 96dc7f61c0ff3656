-- Goes before the text of cancel.lua or reschedule.lua, if the caller names the task by a key. The
-- caller has looked up the id. If the name is that of another task by now, or of none, the script
-- changes nothing and returns nil.
--
-- ARGV    2 id; the last two: 'id', 'key' or 'idempotency', and the name. They are removed, so the
--         text behind this one finds its own arguments.
-- uses: now, keys, owner, idempotency
local name = table.remove(ARGV)
local kind = table.remove(ARGV)
if kind == 'key' then
  name = read_owner(redis.call('HGET', OWNERS, name))
elseif kind == 'idempotency' then
  local first, _, till = read_used(redis.call('HGET', USED, name))
  name = first and tonumber(till) > now and first
end
if name ~= ARGV[2] then return nil end
