-- The codec of a record: a task as it was added. No other file splits or joins this text, except
-- add.lua, which writes it.
--
--   "1 <due_ms> <created_ms> <destination> <options>\n<content>"
--
--   1        the version of the text
--   options  JSON, or - for none
--   tail     "<destination> <options>\n<content>": what its caller asked for

-- The record, and its tail.
local function write_record(due, created, destination, options, content)
  local tail = destination .. ' ' .. options .. '\n' .. content
  return '1 ' .. due .. ' ' .. created .. ' ' .. tail, tail
end

-- The due moment, created moment, destination and options, all as text, and the position of the
-- content; nil if another version wrote the record.
local function read_record(record)
  return string.match(record, '^1 (%d+) (%d+) (%S+) ([^\n]*)\n()')
end

-- Only the destination; nil as read_record.
local function destination_of(record)
  return (string.match(record, '^1 %d+ %d+ (%S+) '))
end

-- The destination, and the first character of the options: '{' if there are any.
local function start_of(record)
  return string.match(record, '^1 %d+ %d+ (%S+) (.)')
end

-- The occurrence that has to end before this task is handed out, by its options; nil for most
-- tasks. Only a task whose options say so costs a pattern.
local function occurrence_before(record)
  local head = string.sub(record, 1, string.find(record, '\n', 1, true))
  if not string.find(head, '"after":', 1, true) then return nil end
  return string.match(head, '"after":([1-9]%d*),')
end

local function due_of(record)
  return tonumber((string.match(record, '^1 (%d+) ')))
end

-- The due moment of a record that has this tail; nil if it has another.
local function due_of_same(record, tail)
  local due, stored_tail = string.match(record, '^1 (%d+) %d+ (.*)$')
  return stored_tail == tail and tonumber(due) or nil
end

-- The record with another due moment.
local function with_due(record, due)
  return '1 ' .. string.format('%.0f', due) .. string.match(record, '^1 %d+( .*)$')
end

-- The record without its content.
local function head_of(record)
  return string.match(record, '^[^\n]*\n') or ''
end

-- Whether a later version wrote the record.
local function is_of_another_version(record)
  return string.match(record, '^%d+ ') ~= nil and string.sub(record, 1, 2) ~= '1 '
end

-- The options as a table; nil if there are none, or if they cannot be read.
local function read_options(options)
  if not options or options == '-' then return nil end
  local is_json, asked = pcall(cjson.decode, options)
  return is_json and type(asked) == 'table' and asked or nil
end

-- The store that accepted the task first, by its options; nil: this one. It is always the first
-- option.
local function origin_of(options)
  return options and string.match(options, '^{"origin":"(%x+)"')
end

-- The options that name this store as the origin.
local function with_origin(options, origin)
  if not origin then return options end
  local field = '{"origin":"' .. origin .. '"'
  return options == '-' and field .. '}' or field .. ',' .. string.sub(options, 2)
end

-- The digest of the content, by the options, if it was removed. It is always the last option.
local function removed_of(options)
  return string.match(options, '"removed":"(%x+)"}$')
end

local function digest_of(content)
  return string.sub(redis.sha1hex(content), 1, 16)
end

-- The record without its content, whose digest is added to the options; nil if it was removed
-- before, if it is empty, so that its digest would take more room, or if the record cannot be read.
local function without_content(record)
  local due, created, destination, options, content_at = read_record(record)
  if not due or removed_of(options) or content_at > #record then return nil end
  local removed = '"removed":"' .. digest_of(string.sub(record, content_at)) .. '"}'
  options = options == '-' and '{' .. removed or string.sub(options, 1, -2) .. ',' .. removed
  return (write_record(due, created, destination, options, ''))
end

-- Whether two contents are the same, if one or both may have been removed.
local function is_same_content(options, content, other_options, other)
  local removed, other_removed = removed_of(options), removed_of(other_options)
  if not removed and not other_removed then return content == other end
  return (removed or digest_of(content)) == (other_removed or digest_of(other))
end

-- How many ms after its due moment a task expires, by its options; nil: never.
local function expires_after(options)
  local asked = read_options(options)
  local span = asked and asked.expires_after
  return type(span) == 'string' and tonumber(string.match(span, '^(%d+)ms$')) or nil
end

-- The dead-letter call that the options ask for; nil if none, or if its id was not drawn.
local function call_of(options)
  local asked = read_options(options)
  local call = asked and asked.on_dead
  return type(call) == 'table' and type(call.task_id) == 'number' and call or nil
end

-- The key that the task was added with; nil if none.
local function key_of(record)
  local _, _, _, options = read_record(record)
  local asked = read_options(options)
  return asked and type(asked.key) == 'string' and asked.key or nil
end
