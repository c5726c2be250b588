// The daemon's own calls of the OCI runtime: start, kill, delete, state. Creating and executing are the monitor's.

import { basename } from 'node:path'
import { MonitorError } from '../base/errors.ts'
import { runCommand } from './run-command.ts'

/** What the OCI runtime says of a container; `absent`: it does not know it. */
export type OciState = 'creating' | 'created' | 'running' | 'paused' | 'stopped' | 'absent'

export class OciControl {
  readonly path: string
  readonly root: string

  constructor(path: string, root: string) {
    this.path = path
    this.root = root
  }

  /** For messages: `runc`. */
  get name(): string {
    return basename(this.path)
  }

  async start(id: string): Promise<void> {
    const { code, stderr } = await this.#run('start', id)
    if (code !== 0) throw this.#failed('start', id, stderr)
  }

  /** False: there was no such process any more. */
  async kill(id: string, signal: number): Promise<boolean> {
    const { code, stderr } = await this.#run('kill', id, String(signal))
    if (code === 0) return true
    if (isOver(stderr)) return false
    throw this.#failed('kill', id, stderr)
  }

  /** Removes what the OCI runtime and the kernel keep of a container, and kills what is left of it. */
  async delete(id: string): Promise<void> {
    const { code, stderr } = await this.#run('delete', '--force', id)
    if (code !== 0 && !isUnknown(stderr)) throw this.#failed('delete', id, stderr)
  }

  async state(id: string): Promise<OciState> {
    const { code, stdout, stderr } = await this.#run('state', id)
    if (code !== 0) {
      if (isUnknown(stderr)) return 'absent'
      throw this.#failed('state', id, stderr)
    }
    const { status } = JSON.parse(stdout) as { status?: OciState }
    return status ?? 'absent'
  }

  async #run(command: string, ...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
    return await runCommand(this.path, ['--root', this.root, command, ...args])
  }

  #failed(command: string, id: string, stderr: string): MonitorError {
    return new MonitorError('internal', `${this.name} ${command} ${id}: ${lastWords(stderr)}`)
  }
}

/** runc: "container does not exist"; crun: "error opening file `…/status`: No such file or directory". */
function isUnknown(stderr: string): boolean {
  return /does not exist|No such file or directory|not found/i.test(stderr)
}

/** runc: "container not running", "process already finished"; crun: "kill container: No such process". */
function isOver(stderr: string): boolean {
  return isUnknown(stderr) || /not running|already finished|No such process/i.test(stderr)
}

/** The message of the last line; both runtimes print one line per level when they log. */
function lastWords(stderr: string): string {
  const last = stderr.trim().split('\n').at(-1) ?? ''
  const logged = /^time="[^"]*" level=\w+ msg="((?:[^"\\]|\\.)*)"/.exec(last)
  return (logged?.[1]?.replaceAll('\\"', '"') ?? last) || 'no message'
}
