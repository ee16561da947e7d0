// Cursors in the format of datastore/session/cursors.py: an index position in base64url, signed and bound to its list.

import { createHmac } from 'node:crypto'

const TAG_BYTES = 16

/** Sign positions in one list. `names` are its key attributes in alphabetical order; `binding` identifies the list. */
export function listing(secret, names, binding) {
  const key = createHmac('sha256', secret).update('cursor').digest()
  return (argumentsOfList) => {
    const bound = Buffer.from(`${binding}?${JSON.stringify(argumentsOfList)}`)
    const length = Buffer.alloc(4)
    length.writeUInt32BE(bound.length)
    return (item) => {
      const position = {}
      for (const name of names) position[name] = { S: item[name] }
      const content = Buffer.from(JSON.stringify(position))
      const tag = createHmac('sha256', key).update(length).update(bound).update(content).digest()
      return Buffer.concat([tag.subarray(0, TAG_BYTES), content]).toString('base64url')
    }
  }
}
