// A CRI client of a few lines: what the API-server front asks of holdfastd.

import { join } from 'node:path'
import { repository } from './programs.ts'

interface Stub {
  close(): void
  [method: string]: unknown
}
type StubConstructor = new (address: string, credentials: unknown) => Stub
type Callback = (error: Error | null, response: unknown) => void

export interface PodSandbox {
  readonly id: string
  readonly metadata: { readonly name: string; readonly namespace: string; readonly uid: string }
  readonly state: string
}

export interface Container {
  readonly id: string
  readonly podSandboxId: string
  readonly metadata: { readonly name: string }
  readonly image: { readonly image: string }
  readonly state: string
}

/** The streaming calls and the lists, over gRPC. */
export class CriClient {
  readonly #stub: Stub

  private constructor(stub: Stub) {
    this.#stub = stub
  }

  static async connect(socketPath: string): Promise<CriClient> {
    const grpc = await import('@grpc/grpc-js')
    const loader = await import('@grpc/proto-loader')
    const definition = await loader.load(join(repository, 'proto', 'cri.proto'), {
      enums: String,
      longs: Number,
      defaults: true,
    })
    const loaded = grpc.loadPackageDefinition(definition) as unknown as {
      runtime: { v1: { RuntimeService: StubConstructor } }
    }
    return new CriClient(
      new loaded.runtime.v1.RuntimeService(`unix:${socketPath}`, grpc.credentials.createInsecure()),
    )
  }

  async pods(): Promise<readonly PodSandbox[]> {
    return ((await this.#call('ListPodSandbox', {})) as { items: PodSandbox[] }).items
  }

  async containers(): Promise<readonly Container[]> {
    return ((await this.#call('ListContainers', {})) as { containers: Container[] }).containers
  }

  /** A stream URL from Exec, Attach or PortForward. */
  async url(method: 'Exec' | 'Attach' | 'PortForward', request: object): Promise<string> {
    return ((await this.#call(method, request)) as { url: string }).url
  }

  close(): void {
    this.#stub.close()
  }

  async #call(method: string, request: object): Promise<unknown> {
    return await new Promise((resolve, reject) => {
      const call = this.#stub[method] as (request: object, callback: Callback) => void
      call.call(this.#stub, request, (error, response) => {
        if (error === null) resolve(response)
        else reject(error)
      })
    })
  }
}
