-- Checks that each task on a schedule belongs there.
--
-- ARGV    2 'schedule:<destination>'; the others in lib/check.lua
-- returns see lib/check.lua
-- uses: now, keys, check

-- Checks that a task on a schedule has content, and waits for this destination.
local function judge_scheduled(destination, id, score)
  local record = redis.call('HGET', BODIES, id)
  if not record then
    if find('scheduled-without-body', id) then take_off(destination, id) end
    return
  end
  local head = read_head(record)
  if not head or head.home == destination then return end
  if find('wrong-schedule', id) then
    local entry = redis.call('HGET', ENTRIES, id)
    entry = entry and sound_entry(entry)
    local stands_elsewhere = redis.call('ZSCORE', LEASED, id) or due_at(head.home, id)
      or #listed_ends(id) > 0 or (entry and ENDED[entry.mark])
    take_off(destination, id)
    if not stands_elsewhere then
      put_on(head.home, id, as_moment(score) or math.max(head.due, now))
    end
  end
end

local destination = string.match(structure, '^schedule:(.*)$')
walk_zset(SCHEDULES .. destination, function(id, score)
  judge_scheduled(destination, id, score)
end, function() correct_sound(destination) end)
return { page_cursor, 0, '', findings, {}, '' }
