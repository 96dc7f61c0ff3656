-- Checks that each task that a structure names has a record.
--
-- ARGV    2 'entries' | 'notes' | 'leased' | 'expiries' | a final state; the others in
--         lib/check.lua
-- returns see lib/check.lua
-- uses: keys, check
local hashes = { entries = ENTRIES, notes = NOTES }
local sets = { leased = LEASED, expiries = EXPIRIES }
local flaws = {
  entries = 'entry-without-body', notes = 'note-without-body',
  leased = 'leased-without-body', expiries = 'expiry-wrong',
}
local flaw = flaws[structure] or 'ended-without-body'
if hashes[structure] then
  walk_hash(hashes[structure], function(id)
    judge_bodiless(id, flaw, function() redis.call('HDEL', hashes[structure], id) end)
  end)
else
  local key = sets[structure] or ENDED[structure]
  walk_zset(key, function(id)
    judge_bodiless(id, flaw, function() redis.call('ZREM', key, id) end)
  end)
end
return { page_cursor, 0, '', findings, {}, '' }
