-- Appends entries to the audit log: all of them, or none if the memory limit is reached.
--
-- KEYS    1 the stream
-- ARGV    2 about how many entries stay; 3 ... the entries
-- returns nothing
for i = 3, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'entry', ARGV[i])
end
