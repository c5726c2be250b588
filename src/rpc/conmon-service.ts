// conmon-rs's interface on the monitor: decode, call, encode; one short function per method. An error's text goes out
// as it is.

import { parseId } from '../base/ids.ts'
import { ATTACH_REPLAY_BYTES } from '../base/limits.ts'
import type { Service } from '../capnp/rpc-service.ts'
import { bindService } from '../capnp/rpc-service.ts'
import { Conmon } from '../generated/conmon.ts'
import type { MonitorCalls } from '../monitor/requests.ts'
import {
  createContainerRequest,
  execSyncRequest,
  execSyncResponse,
  versionResponse,
} from './schema-mapping.ts'

/** The service for runtimes that know conmon-rs. */
export function conmonService(calls: MonitorCalls): Service {
  return bindService(
    Conmon,
    {
      version: ({ request }) => ({
        response: versionResponse(calls.version(request.verbose), request.verbose),
      }),

      createContainer: async ({ request }) => {
        parseId('container id', request.id)
        return { response: { containerPid: await calls.createContainer(createContainerRequest(request)) } }
      },

      execSyncContainer: async ({ request }, { signal }) => {
        parseId('container id', request.id)
        return { response: execSyncResponse(await calls.execSync(execSyncRequest(request), signal)) }
      },

      attachContainer: async ({ request: { id, socketPath, stopAfterStdinEof } }) => {
        await calls.attachContainer({ id: parseId('container id', id), socketPath, stopAfterStdinEof })
        return { response: {} }
      },

      reopenLogContainer: async ({ request }) => {
        await calls.reopenLog(parseId('container id', request.id))
        return { response: {} }
      },

      setWindowSizeContainer: ({ request: { id, width, height } }) => {
        calls.setWindowSize(parseId('container id', id), { width, height })
        return { response: {} }
      },

      createNamespaces: async ({ request }) => {
        const { metadata: _, ...namespaces } = request
        return { response: { namespaces: await calls.createNamespaces(namespaces) } }
      },

      startFdSocket: async () => ({ response: { path: await calls.startFdSocket() } }),

      serveExecContainer: async ({ request }) => {
        const { metadata: _, ...exec } = request
        parseId('container id', exec.id)
        return { response: { url: await calls.serveExec(exec) } }
      },

      // This interface cannot say more: the monitor takes what it does not say from the container.
      serveAttachContainer: async ({ request: { id, stdin, stdout, stderr } }) => {
        parseId('container id', id)
        const unsaid = { tty: undefined, stdinOnce: undefined, replayBytes: ATTACH_REPLAY_BYTES }
        return { response: { url: await calls.serveAttach({ id, stdin, stdout, stderr, ...unsaid }) } }
      },

      servePortForwardContainer: async ({ request }) => {
        const unsaid = { podSandboxId: '', ports: [] }
        return {
          response: { url: await calls.servePortForward({ netnsPath: request.netNsPath, ...unsaid }) },
        }
      },
    },
    ['execSyncContainer'],
  )
}
