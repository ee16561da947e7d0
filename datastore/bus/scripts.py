"""What the bus does in Redis in one step: to hold a table, to begin an order of its changes, to append to it.

Each script gets the same keys: the lease, the state and the changes of one table. The lease is `fence:instance`, and
goes by itself; who holds it names it with all that it writes, so that a process that was paused writes nothing once
another holds it. The state is a hash: `epoch` (the order's id), `stream` (its ARN), `by` (the lease of who has attached
last), `changes` and `bytes` (of all that was appended in the order) and for each shard `p:<shard>`, its position, and
`f:<shard>`, its parent, where it has one. `single` is for processes of earlier releases, and empty. Sequence numbers
have up to 40 digits and are compared as texts.
"""

KEPT_SECONDS = 300
# Of a table, as many as a process's own log has.
CHANGES_KEPT, BYTES_KEPT = 10_000, 16_000_000
# An entry's records; a record of more has one of its own.
ENTRY_BYTES = 64_000

_BEGIN = """
local lease, state, changes = KEYS[1], KEYS[2], KEYS[3]
local function kept()
  redis.call('PEXPIRE', state, KEPT)
  redis.call('PEXPIRE', changes, KEPT)
end
""".replace("KEPT", str(KEPT_SECONDS * 1000))

# ARGV: instance, milliseconds of the lease, whether it is wanted, then shards, positions and parents (empty for none)
# of those that are idle. Keys that somebody else made something else of are made anew. For who does not hold it, too,
# the lease is written, as it is: so everybody sees within a second that Redis is full, or takes no writes. Answers: the
# lease, the id of the last change, the state.
CLAIM = (
    _BEGIN
    + """
for key, kind in pairs({[lease] = 'string', [state] = 'hash', [changes] = 'stream'}) do
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then redis.call('DEL', key) end
end
local held = redis.call('GET', lease)
if held and (redis.call('PTTL', lease) < 0 or not string.match(held, '^%d+:.')) then held = false end
if not held and ARGV[3] == '1' then
  local time = redis.call('TIME')
  local last = tonumber(redis.call('HGET', state, 'fence') or '') or 0
  local fence = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
  held = fence .. ':' .. ARGV[1]
  redis.call('HSET', state, 'fence', fence)
  redis.call('SET', lease, held, 'PX', ARGV[2])
  kept()
elseif held and string.match(held, '^%d+:(.*)$') == ARGV[1] then
  redis.call('SET', lease, held, 'PX', ARGV[2])
  for i = 4, #ARGV, 3 do
    local name = 'p:' .. ARGV[i]
    if redis.call('HGET', state, 'by') == held and not string.match(redis.call('HGET', state, name) or '', '^%d') then
      redis.call('HSET', state, name, ARGV[i + 1])
      if ARGV[i + 2] ~= '' then redis.call('HSET', state, 'f:' .. ARGV[i], ARGV[i + 2]) end
    end
  end
  kept()
elseif held then
  redis.call('SET', lease, held, 'KEEPTTL')
end
local last = redis.call('XREVRANGE', changes, '+', '-', 'COUNT', 1)
return {held or '', last[1] and last[1][1] or '0-0', redis.call('HGETALL', state)}
"""
)

# ARGV: lease, epoch, ARN, then shards, positions and parents (empty for none). Forgets what was there before.
# Answers whether the lease counts.
BEGIN = (
    _BEGIN
    + """
if redis.call('GET', lease) ~= ARGV[1] then return 0 end
redis.call('DEL', state, changes)
redis.call('HSET', state, 'epoch', ARGV[2], 'stream', ARGV[3], 'by', ARGV[1], 'fence', string.match(ARGV[1], '^%d+'),
  'single', '')
for i = 4, #ARGV, 3 do
  redis.call('HSET', state, 'p:' .. ARGV[i], ARGV[i + 1])
  if ARGV[i + 2] ~= '' then redis.call('HSET', state, 'f:' .. ARGV[i], ARGV[i + 2]) end
end
kept()
return 1
"""
)

# ARGV: lease, epoch. Whoever holds it now is attached, and goes on with this order.
ATTACH = (
    _BEGIN
    + """
if redis.call('GET', lease) ~= ARGV[1] or redis.call('HGET', state, 'epoch') ~= ARGV[2] then return 0 end
redis.call('HSET', state, 'by', ARGV[1])
kept()
return 1
"""
)

# ARGV: lease, epoch, shard, the position that the page follows, the shard's parent (empty for none), then sequence
# numbers and records. An entry names the parent in a field of its own, and has many
# changes, as each entry takes its time to read; it tells how many changes, of how many bytes, were appended before it:
# by that the oldest go. What is no entry of the order goes when it is the oldest. Answers how many changes were new;
# -1 when the lease does not count, -2 when the page does not follow what is noted.
APPEND = (
    _BEGIN
    + """
if redis.call('GET', lease) ~= ARGV[1] then return -1 end
if redis.call('HGET', state, 'epoch') ~= ARGV[2] then return -2 end
local function padded(sequence) return string.rep('0', 40 - #sequence) .. sequence end
local function noted(name) return tonumber(redis.call('HGET', state, name) or '') or 0 end
local name, follows = 'p:' .. ARGV[3], ARGV[4]
local at = redis.call('HGET', state, name) or ''
if string.match(follows, '^%d+$') then
  if not string.match(at, '^%d+$') or padded(at) < padded(follows) then return -2 end
elseif follows ~= '' and string.match(follows, '^@%S*') ~= string.match(at, '^@%S*') then
  return -2
end
local before, told, size, newest = noted('changes'), noted('changes'), noted('bytes'), ''
local records, length, from = {}, 0, at
local function put()
  if #records == 0 then return end
  local head = {ARGV[2], ARGV[3], from, string.format('%.0f %.0f', told, size)}
  local entry = table.concat(head, '\\n') .. '\\n[' .. table.concat(records, ',') .. ']'
  newest = redis.call('XADD', changes, 'MAXLEN', '~', MOST_CHANGES, '*', 'c', entry, 'f', ARGV[5])
  told, size = told + #records, size + length
  records, length, from = {}, 0, at
end
for i = 6, #ARGV, 2 do
  local sequence, record = ARGV[i], ARGV[i + 1]
  if not string.match(at, '^%d+$') or padded(sequence) > padded(at) then
    if length + #record > ENTRY_BYTES then put() end
    records[#records + 1] = record
    length, at = length + #record, sequence
  end
end
put()
while newest ~= '' do
  local first = redis.call('XRANGE', changes, '-', '+', 'COUNT', 1)[1]
  if first[1] == newest then break end
  local epoch, many, bytes = string.match(first[2][2], '^([^\\n]*)\\n[^\\n]*\\n[^\\n]*\\n(%d+) (%d+)\\n')
  local is_ours = epoch == ARGV[2] and tonumber(many) < told
  if is_ours and told - many <= MOST_CHANGES and size - bytes <= MOST_BYTES then break end
  redis.call('XDEL', changes, first[1])
end
if ARGV[5] ~= '' then redis.call('HSET', state, 'f:' .. ARGV[3], ARGV[5]) end
redis.call('HSET', state, name, at, 'changes', string.format('%.0f', told), 'bytes', string.format('%.0f', size))
kept()
return told - before
""".replace("MOST_CHANGES", str(CHANGES_KEPT))
    .replace("MOST_BYTES", str(BYTES_KEPT))
    .replace("ENTRY_BYTES", str(ENTRY_BYTES))
)

# ARGV: lease. Gives it up, and wakes those who read.
RELEASE = (
    _BEGIN
    + """
if redis.call('GET', lease) ~= ARGV[1] then return 0 end
redis.call('DEL', lease)
redis.call('XADD', changes, 'MAXLEN', '~', MOST_CHANGES, '*', 'free', '1')
kept()
return 1
"""
).replace("MOST_CHANGES", str(CHANGES_KEPT))

# On keys of no table, which are gone behind it: all commands that the others use, first one that a full Redis refuses.
PROBE = """
local lease, state, changes = KEYS[1], KEYS[2], KEYS[3]
redis.call('SET', lease, redis.call('TIME')[1], 'PX', 1000)
redis.call('SET', lease, redis.call('GET', lease), 'KEEPTTL')
redis.call('TYPE', lease)
redis.call('PTTL', lease)
redis.call('HSET', state, 'by', redis.call('HGET', state, 'by') or '')
redis.call('HGETALL', state)
redis.call('HDEL', state, 'by')
redis.call('XADD', changes, 'MAXLEN', '~', 1, '*', 'c', '')
redis.call('XRANGE', changes, '-', '+', 'COUNT', 1)
redis.call('XDEL', changes, redis.call('XREVRANGE', changes, '+', '-', 'COUNT', 1)[1][1])
redis.call('PEXPIRE', changes, 1000)
redis.call('DEL', lease, state, changes)
return 1
"""
