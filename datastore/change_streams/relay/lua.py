"""The Lua scripts of the bus: claim a table, begin an epoch of its changes, append changes.

Each script gets the same keys: the lease, the state and the changes of one table. The lease is `fence:instance` and
expires. The holder names its lease with each write, so a process that was paused writes nothing after another process
has taken the lease. The state is a hash: `epoch` (the id of the current order of changes), `stream` (its ARN), `by`
(the lease of the process that continued it last), `changes` and `bytes` (totals appended in the epoch), and for each
shard `p:<shard>`, its position, and `f:<shard>`, its parent if it has one. `single` is empty; processes of earlier
releases read it. Sequence numbers have up to 40 digits and are compared as texts.
"""

KEPT_SECONDS = 300
# The limits of a table's log in Redis. A process's replay log has the same limits.
MAX_CHANGES, MAX_BYTES = 10_000, 16_000_000
# The maximum bytes of the records in an entry; a larger record has a separate entry.
ENTRY_BYTES = 64_000

_BEGIN = """
local lease, state, changes = KEYS[1], KEYS[2], KEYS[3]
local function kept()
  redis.call('PEXPIRE', state, KEPT)
  redis.call('PEXPIRE', changes, KEPT)
end
""".replace("KEPT", str(KEPT_SECONDS * 1000))

# Take or renew the lease. ARGV: the instance, the lease's duration in milliseconds, whether the instance may claim
# the lease, then shard, position and parent (empty for none) of each idle shard. Deletes keys of another Redis type,
# which another program wrote. A process without the lease writes it back unchanged: the write shows within a second
# that Redis is full or read-only. Returns the lease, the id of the last change, and the state.
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

# Begin an epoch. ARGV: lease, epoch, ARN, then shard, position and parent (empty for none) of each shard. Deletes the
# state and the changes of the previous epoch. Returns 1, or 0 if the lease has expired.
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

# Continue an epoch. ARGV: lease, epoch. Records the lease in `by`.
CONTINUE = (
    _BEGIN
    + """
if redis.call('GET', lease) ~= ARGV[1] or redis.call('HGET', state, 'epoch') ~= ARGV[2] then return 0 end
redis.call('HSET', state, 'by', ARGV[1])
kept()
return 1
"""
)

# Append a page. ARGV: lease, epoch, shard, the position that the page follows, the shard's parent (empty for none),
# then sequence numbers and records. An entry holds many changes, since each entry adds a cost to reading. It has the
# parent in a separate field. It also holds the number and bytes of the changes appended before it. By these the oldest
# entries are trimmed. An entry of another epoch is deleted when it is the oldest. Returns the number of new
# changes, -1 if the lease has expired, or -2 if the page does not follow the stored position.
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
local before, total, size, newest = noted('changes'), noted('changes'), noted('bytes'), ''
local records, length, from = {}, 0, at
local function put()
  if #records == 0 then return end
  local head = {ARGV[2], ARGV[3], from, string.format('%.0f %.0f', total, size)}
  local entry = table.concat(head, '\\n') .. '\\n[' .. table.concat(records, ',') .. ']'
  newest = redis.call('XADD', changes, 'MAXLEN', '~', MOST_CHANGES, '*', 'c', entry, 'f', ARGV[5])
  total, size = total + #records, size + length
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
  local is_ours = epoch == ARGV[2] and tonumber(many) < total
  if is_ours and total - many <= MOST_CHANGES and size - bytes <= MOST_BYTES then break end
  redis.call('XDEL', changes, first[1])
end
if ARGV[5] ~= '' then redis.call('HSET', state, 'f:' .. ARGV[3], ARGV[5]) end
redis.call('HSET', state, name, at, 'changes', string.format('%.0f', total), 'bytes', string.format('%.0f', size))
kept()
return total - before
""".replace("MOST_CHANGES", str(MAX_CHANGES))
    .replace("MOST_BYTES", str(MAX_BYTES))
    .replace("ENTRY_BYTES", str(ENTRY_BYTES))
)

# Release the lease, and wake the readers. ARGV: lease.
RELEASE = (
    _BEGIN
    + """
if redis.call('GET', lease) ~= ARGV[1] then return 0 end
redis.call('DEL', lease)
redis.call('XADD', changes, 'MAXLEN', '~', MOST_CHANGES, '*', 'free', '1')
kept()
return 1
"""
).replace("MOST_CHANGES", str(MAX_CHANGES))

# Run all commands of the other scripts on keys of no table. The first command is one that a full Redis refuses.
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
