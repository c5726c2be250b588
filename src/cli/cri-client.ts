// holdfastd as the command line sees it: the few CRI calls that `run`, `ps` and `rm` make. gRPC is loaded when the
// first of them connects; sessions never come this way.

import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { ServiceError } from '@grpc/grpc-js'
import { MonitorError, type ErrorCode } from '../base/errors.ts'
import { CRI_CALL_TIMEOUT_MS } from '../base/limits.ts'

/** A pod as listed. Times are nanoseconds since 1970, as decimal text. */
export interface CriPod {
  readonly id: string
  readonly metadata: { readonly name: string; readonly namespace: string }
  readonly state: 'SANDBOX_READY' | 'SANDBOX_NOTREADY'
  readonly created_at: string
}

/** A container as listed. */
export interface CriContainer {
  readonly id: string
  readonly pod_sandbox_id: string
  readonly metadata: { readonly name: string }
  readonly image: { readonly image: string }
  readonly state: 'CONTAINER_CREATED' | 'CONTAINER_RUNNING' | 'CONTAINER_EXITED' | 'CONTAINER_UNKNOWN'
  readonly created_at: string
}

/** One container in detail. */
export interface CriContainerStatus {
  readonly id: string
  readonly state: CriContainer['state']
  readonly exit_code: number
  readonly reason: string
  readonly message: string
}

/** What a pod is made from. */
export interface CriPodConfig {
  readonly metadata: {
    readonly name: string
    readonly uid: string
    readonly namespace: string
    readonly attempt: number
  }
  readonly hostname: string
  readonly log_directory: string
  readonly labels: Readonly<Record<string, string>>
}

/** What a container is made from. */
export interface CriContainerConfig {
  readonly metadata: { readonly name: string; readonly attempt: number }
  readonly image: { readonly image: string }
  readonly labels: Readonly<Record<string, string>>
  readonly command: readonly string[]
  readonly envs: readonly { readonly key: string; readonly value: Buffer }[]
  readonly log_path: string
  readonly stdin: boolean
  readonly stdin_once: boolean
  readonly tty: boolean
}

/** An answer to a unary call, as grpc-js makes clients from a proto. */
type Unary = (
  request: unknown,
  options: { deadline: number },
  done: (error: ServiceError | null, response: unknown) => void,
) => void

interface ServiceClient {
  close(): void
}

/** One connection to holdfastd. */
export class CriClient {
  readonly #endpoint: string
  readonly #runtime: ServiceClient

  private constructor(endpoint: string, runtime: ServiceClient) {
    this.#endpoint = endpoint
    this.#runtime = runtime
  }

  /** `endpoint` is the socket's path, with or without `unix://`. Does not wait for the daemon. */
  static async connect(endpoint: string): Promise<CriClient> {
    const { loadSync } = await import('@grpc/proto-loader')
    const { credentials, loadPackageDefinition } = await import('@grpc/grpc-js')
    const definition = loadSync(protoPath(), { keepCase: true, longs: String, enums: String, defaults: true })
    const runtime = (loadPackageDefinition(definition) as unknown as CriPackage).runtime.v1.RuntimeService
    const path = endpoint.replace(/^unix:(\/\/)?/, '')
    // The socket's path makes no host name; servers other than ours refuse it as authority.
    const options = {
      'grpc.default_authority': 'localhost',
      'grpc.max_receive_message_length': 16 * 1024 * 1024,
    }
    return new CriClient(path, new runtime(`unix:${path}`, credentials.createInsecure(), options))
  }

  /** Resolves to the pod's id. */
  async runPod(config: CriPodConfig): Promise<string> {
    const answer = await this.#call<{ pod_sandbox_id: string }>('RunPodSandbox', { config })
    return answer.pod_sandbox_id
  }

  async stopPod(id: string): Promise<void> {
    await this.#call('StopPodSandbox', { pod_sandbox_id: id })
  }

  async removePod(id: string): Promise<void> {
    await this.#call('RemovePodSandbox', { pod_sandbox_id: id })
  }

  async listPods(): Promise<readonly CriPod[]> {
    return (await this.#call<{ items: CriPod[] }>('ListPodSandbox', {})).items
  }

  /** Resolves to the container's id. */
  async createContainer(podId: string, config: CriContainerConfig, pod: CriPodConfig): Promise<string> {
    const request = { pod_sandbox_id: podId, config, sandbox_config: pod }
    return (await this.#call<{ container_id: string }>('CreateContainer', request)).container_id
  }

  async startContainer(id: string): Promise<void> {
    await this.#call('StartContainer', { container_id: id })
  }

  /** Kills after `seconds`. */
  async stopContainer(id: string, seconds: number): Promise<void> {
    await this.#call('StopContainer', { container_id: id, timeout: String(seconds) })
  }

  async listContainers(): Promise<readonly CriContainer[]> {
    return (await this.#call<{ containers: CriContainer[] }>('ListContainers', {})).containers
  }

  async containerStatus(id: string): Promise<CriContainerStatus> {
    return (await this.#call<{ status: CriContainerStatus }>('ContainerStatus', { container_id: id })).status
  }

  close(): void {
    this.#runtime.close()
  }

  #call<T>(method: string, request: unknown): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const call = (this.#runtime as unknown as Record<string, Unary>)[method]
      if (call === undefined) throw new MonitorError('unimplemented', `cri.proto has no ${method}`)
      call.call(this.#runtime, request, { deadline: Date.now() + CRI_CALL_TIMEOUT_MS }, (error, response) => {
        if (error === null) resolve(response as T)
        else reject(this.#explain(error))
      })
    })
  }

  #explain(error: ServiceError): MonitorError {
    const code = errorCodes[error.code] ?? 'internal'
    if (code !== 'unavailable') return new MonitorError(code, error.details, { cause: error })
    // Of grpc-js's paragraph only what the system said.
    const why = /connect E\w+/.exec(error.details)?.[0] ?? error.details
    const text = `no holdfastd answers at ${this.#endpoint} (${why}); start it, or name its socket with --endpoint or HOLDFAST_ENDPOINT`
    return new MonitorError(code, text, { cause: error })
  }
}

interface CriPackage {
  readonly runtime: {
    readonly v1: {
      readonly RuntimeService: new (address: string, credentials: unknown, options: object) => ServiceClient
    }
  }
}

/** gRPC's status numbers. */
const errorCodes: Readonly<Record<number, ErrorCode>> = {
  1: 'canceled',
  3: 'invalid-argument',
  4: 'deadline-exceeded',
  5: 'not-found',
  6: 'already-exists',
  8: 'resource-exhausted',
  9: 'failed-precondition',
  12: 'unimplemented',
  14: 'unavailable',
}

/** Beside the bundle, or in the source tree when the compiled files run. */
function protoPath(): string {
  // Not import.meta.dirname: the bundle knows import.meta.url only.
  const here = dirname(fileURLToPath(import.meta.url))
  const places = [join(here, 'cri.proto'), join(here, '../../../proto/cri.proto')]
  const found = places.find((place) => existsSync(place))
  if (found === undefined) throw new MonitorError('internal', `find cri.proto: not in ${places.join(' or ')}`)
  return found
}
