// The command line of each server: node SERVER.js PORT STORE_URL CLIENT, with the secret of cursors in GATEWAY_SECRET.

import { ownClient } from './own_client.js'
import { sdkClient } from './sdk_client.js'
import { Store } from './store.js'

const [port, storeUrl, clientName] = process.argv.slice(2)
const client = { sdk: sdkClient, own: ownClient }[clientName](storeUrl)

export const listenOn = { port: Number(port), host: '127.0.0.1' }

export const context = () => ({ store: new Store(client) })
