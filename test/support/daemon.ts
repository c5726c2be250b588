// holdfastd with its pods, driven by gRPC calls: for tests that need no program written elsewhere.

import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { credentials, loadPackageDefinition } from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import { setTimeout as sleep } from 'node:timers/promises'

const root = resolve(import.meta.dirname, '../../..')

type Call = (
  request: object,
  callback: (error: Error | null, response: Record<string, unknown>) => void,
) => void

type Stub = Record<string, Call> & { close(): void }

export class DaemonUnderTest {
  readonly directory: string
  readonly socketPath: string
  readonly #stub: Stub
  #daemon: ChildProcess
  #output = ''

  private constructor(directory: string) {
    this.directory = directory
    this.socketPath = join(directory, 'd.sock')
    this.#daemon = this.#spawn()
    const definition = loadSync(join(root, 'proto/cri.proto'), {
      enums: String,
      longs: Number,
      defaults: true,
    })
    const loaded = loadPackageDefinition(definition) as unknown as {
      runtime: {
        v1: { RuntimeService: new (address: string, credentials: unknown) => Stub }
      }
    }
    this.#stub = new loaded.runtime.v1.RuntimeService(`unix:${this.socketPath}`, credentials.createInsecure())
  }

  static async start(): Promise<DaemonUnderTest> {
    const daemon = new DaemonUnderTest(mkdtempSync(join(tmpdir(), 'holdfast-daemon-')))
    await daemon.#answering()
    return daemon
  }

  /** A crash and a new start. */
  async restart(): Promise<void> {
    this.#daemon.kill('SIGKILL')
    await once(this.#daemon, 'exit')
    this.#daemon = this.#spawn()
    await this.#answering()
  }

  call(method: string, request: object): Promise<Record<string, unknown>> {
    return new Promise((resolvePromise, reject) => {
      this.#stub[method]?.(request, (error, response) => {
        if (error === null) resolvePromise(response)
        else reject(error)
      })
    })
  }

  async runPod(name: string): Promise<{ id: string; config: object }> {
    const metadata = { name, namespace: 'default', uid: `uid-${name}`, attempt: 0 }
    const config = { metadata, logDirectory: join(this.directory, 'logs'), linux: {} }
    const { podSandboxId } = await this.call('RunPodSandbox', { config })
    return { id: String(podSandboxId), config }
  }

  async runContainer(
    pod: { id: string; config: object },
    config: { readonly name: string; readonly command: readonly string[]; readonly [field: string]: unknown },
  ): Promise<string> {
    const { name, ...rest } = config
    const full = {
      metadata: { name },
      image: { image: 'busybox' },
      logPath: `${name}.log`,
      linux: {},
      ...rest,
    }
    const { containerId } = await this.call('CreateContainer', {
      podSandboxId: pod.id,
      config: full,
      sandboxConfig: pod.config,
    })
    await this.call('StartContainer', { containerId })
    return String(containerId)
  }

  async url(method: 'Exec' | 'Attach' | 'PortForward', request: object): Promise<string> {
    return String((await this.call(method, request))['url'])
  }

  async stop(): Promise<void> {
    const { items } = (await this.call('ListPodSandbox', {})) as unknown as { items: { id: string }[] }
    for (const { id } of items) {
      await this.call('StopPodSandbox', { podSandboxId: id })
      await this.call('RemovePodSandbox', { podSandboxId: id })
    }
    this.#stub.close()
    this.#daemon.kill('SIGTERM')
    await once(this.#daemon, 'exit')
    rmSync(this.directory, { recursive: true, force: true })
  }

  #spawn(): ChildProcess {
    const args = ['--state', join(this.directory, 'state'), '--socket', this.socketPath]
    const child = spawn(join(root, 'dist/bin/holdfastd'), args, { stdio: ['ignore', 'pipe', 'pipe'] })
    const collect = (chunk: Buffer): void => {
      this.#output = (this.#output + chunk.toString()).slice(-4096)
    }
    child.stdout.on('data', collect)
    child.stderr.on('data', collect)
    return child
  }

  async #answering(): Promise<void> {
    for (let i = 0; i < 200; i++) {
      try {
        await this.call('Version', {})
        return
      } catch {
        if (this.#daemon.exitCode !== null) break
        await sleep(50)
      }
    }
    throw new Error(`holdfastd does not answer: ${this.#output}`)
  }
}
