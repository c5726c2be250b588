// Our own interface on the monitor, beside conmon-rs's: decode, call, encode.

import { parseId } from '../base/ids.ts'
import type { Service } from '../capnp/rpc-service.ts'
import { bindService } from '../capnp/rpc-service.ts'
import { Holdfast } from '../generated/holdfast.ts'
import type { MonitorCalls } from '../monitor/requests.ts'
import { containerInfo, flagValue } from './schema-mapping.ts'

/** The service for clients that know holdfast. */
export function holdfastService(calls: MonitorCalls): Service {
  return bindService(Holdfast, {
    serveAttach: async ({ request }) => {
      const url = await calls.serveAttach({
        ...request,
        id: parseId('container id', request.id),
        tty: flagValue(request.tty),
        stdinOnce: flagValue(request.stdinOnce),
      })
      return { response: { url } }
    },

    servePortForward: async ({ request }) => ({ response: { url: await calls.servePortForward(request) } }),

    listContainers: () => ({ response: { containers: calls.listContainers().map(containerInfo) } }),
  })
}
