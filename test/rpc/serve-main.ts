// The RPC server as a process of its own, for measurements. Prints `listening` when it is.
// usage: node dist/test/rpc/serve-main.js SOCKET

import { Diagnostics } from '../../src/base/diagnostics.ts'
import { unixListen } from '../../src/native/addon.ts'
import { RpcServer } from '../../src/rpc/rpc-server.ts'
import { FakeCalls } from './fake-calls.ts'

const server = new RpcServer({ calls: new FakeCalls(), diagnostics: new Diagnostics(() => {}) })
server.listen(unixListen(process.argv[2] ?? ''))
process.stdout.write('listening\n')
