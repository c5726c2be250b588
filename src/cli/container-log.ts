// Reads a container's CRI log for a person: the last lines, then what is appended, across rotation by the monitor
// (`log.1`), by a kubelet (rename and ReopenLog) and across truncation. Never writes.

import { watch, type FSWatcher } from 'node:fs'
import { open, stat, type FileHandle } from 'node:fs/promises'
import { basename, dirname } from 'node:path'
import { MonitorError, isErrno } from '../base/errors.ts'
import { LOG_LOOK_AGAIN_MS, LOG_READ_BYTES } from '../base/limits.ts'
import { parseCriLogLine } from '../wire/cri-log-line.ts'

/** One entry of a log. */
export interface LogEntry {
  /** As it stands in the log: RFC 3339, nine digits. */
  readonly time: string
  readonly stream: 'stdout' | 'stderr'
  /** More of the same line follows. */
  readonly partial: boolean
  readonly content: Buffer
}

/** How to read a log. */
export interface ReadLogOptions {
  /** Only the last lines; undefined: all. */
  readonly tail: number | undefined
  readonly follow: boolean
  /** Asked at the end of a followed log: true when nobody will write any more. */
  readonly ended: () => Promise<boolean>
}

/** The entries of the log at `path`, in order. */
export async function* readContainerLog(path: string, options: ReadLogOptions): AsyncGenerator<LogEntry> {
  const news = new News(path, options.follow)
  let log: LogFile | undefined
  try {
    while ((log ??= await LogFile.open(path)) === undefined) {
      if (!options.follow) throw new MonitorError('not-found', `read log ${path}: there is none`)
      if (await options.ended()) return
      await news.wait()
    }
    if (options.tail !== undefined) await log.skipToTail(options.tail)
    for (;;) {
      // In this order: what was written before the end, or before the rename, is read afterwards.
      const over = !options.follow || (await options.ended())
      const successor: LogFile | undefined = options.follow ? await log.successor() : undefined
      try {
        yield* log.rest()
      } catch (error) {
        await successor?.close()
        throw error
      }
      if (successor !== undefined) {
        await log.close()
        log = successor
      } else if (over) return
      else await news.wait()
    }
  } finally {
    news.close()
    await log?.close()
  }
}

/** One file of the log, open, and how far it was read. */
class LogFile {
  readonly #path: string
  readonly #handle: FileHandle
  readonly #inode: bigint
  /** Which file was `log.1` when this one was opened. */
  readonly #rotated: string | undefined
  #position = 0
  /** An entry whose end has not been written yet. */
  #unfinished: Buffer = Buffer.alloc(0)

  private constructor(path: string, handle: FileHandle, inode: bigint, rotated: string | undefined) {
    this.#path = path
    this.#handle = handle
    this.#inode = inode
    this.#rotated = rotated
  }

  /** `from` is another name of a file of the log at `path`. */
  static async open(path: string, from = path): Promise<LogFile | undefined> {
    const rotated = (await identify(`${path}.1`))?.file
    let handle
    try {
      handle = await open(from, 'r')
    } catch (error) {
      if (isErrno(error, 'ENOENT')) return undefined
      throw MonitorError.within(`read log ${from}`, error)
    }
    return new LogFile(path, handle, (await handle.stat({ bigint: true })).ino, rotated)
  }

  /** The file that took this one's place, if one did. */
  async successor(): Promise<LogFile | undefined> {
    const now = await identify(this.#path)
    if (now?.inode === this.#inode) return undefined
    // Rotated twice since we looked: the file in between has been `log.1` since then.
    const between = await identify(`${this.#path}.1`)
    if (between !== undefined && between.inode !== this.#inode && between.file !== this.#rotated)
      return LogFile.open(this.#path, `${this.#path}.1`)
    return now === undefined ? undefined : LogFile.open(this.#path)
  }

  /** Entries from the position to the end of the file. */
  async *rest(): AsyncGenerator<LogEntry> {
    if ((await this.#handle.stat()).size < this.#position) {
      this.#position = 0
      this.#unfinished = Buffer.alloc(0)
    }
    for await (const { line } of this.#lines()) {
      const entry = parseEntry(line)
      if (entry !== undefined) yield entry
    }
  }

  /** Moves the position so that `count` lines of the container follow it. */
  async skipToTail(count: number): Promise<void> {
    const { size } = await this.#handle.stat()
    for (let window = LOG_READ_BYTES; ; window *= 4) {
      const from = Math.max(0, size - window)
      const starts = await this.#lineStarts(from)
      if (starts.length < count && from > 0) continue
      this.#position = count === 0 ? size : (starts.at(-count) ?? 0)
      this.#unfinished = Buffer.alloc(0)
      return
    }
  }

  async close(): Promise<void> {
    await this.#handle.close()
  }

  /** Where lines of the container begin, from an offset on. A line is the entries of one stream up to an F. */
  async #lineStarts(from: number): Promise<number[]> {
    this.#position = from
    this.#unfinished = Buffer.alloc(0)
    const starts: number[] = []
    // Whether each stream is between two lines. In the middle of a file nobody knows before its first F.
    const between = { stdout: from === 0, stderr: from === 0 }
    let cut = from > 0
    for await (const { line, offset } of this.#lines()) {
      const entry = cut ? undefined : parseEntry(line)
      cut = false
      if (entry === undefined) continue
      if (between[entry.stream]) starts.push(offset)
      between[entry.stream] = !entry.partial
    }
    return starts
  }

  async *#lines(): AsyncGenerator<{ line: Buffer; offset: number }> {
    for (;;) {
      const buffer = Buffer.allocUnsafe(LOG_READ_BYTES)
      const { bytesRead } = await this.#handle.read(buffer, 0, LOG_READ_BYTES, this.#position)
      if (bytesRead === 0) return
      const chunk = Buffer.concat([this.#unfinished, buffer.subarray(0, bytesRead)])
      let offset = this.#position - this.#unfinished.length
      this.#position += bytesRead
      let from = 0
      for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, from)) {
        // Before the line is handed out: the reader may leave at any yield.
        this.#unfinished = chunk.subarray(end + 1)
        yield { line: chunk.subarray(from, end), offset }
        offset += end + 1 - from
        from = end + 1
      }
      this.#unfinished = chunk.subarray(from)
    }
  }
}

/** Waits for a change of the log. */
class News {
  readonly #watcher: FSWatcher | undefined
  #changed = false
  #wake: (() => void) | undefined

  constructor(path: string, wanted: boolean) {
    if (!wanted) return
    try {
      // The directory: a watched file would be followed to its new name.
      this.#watcher = watch(dirname(path), (_, name) => {
        if (name !== basename(path)) return
        this.#changed = true
        this.#wake?.()
      })
      this.#watcher.on('error', () => this.#watcher?.close())
    } catch {
      // No more inotify watches, or no directory yet: looking again from time to time does too.
    }
  }

  async wait(): Promise<void> {
    if (!this.#changed) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, LOG_LOOK_AGAIN_MS)
        this.#wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
      this.#wake = undefined
    }
    this.#changed = false
  }

  close(): void {
    this.#watcher?.close()
  }
}

/** Which file a name stands for. `file` tells it from a later one with the same inode number, unless it is renamed. */
async function identify(path: string): Promise<{ inode: bigint; file: string } | undefined> {
  try {
    const { ino, ctimeNs } = await stat(path, { bigint: true })
    return { inode: ino, file: `${ino} ${ctimeNs}` }
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return undefined
    throw MonitorError.within(`read log ${path}`, error)
  }
}

/** Undefined for what is no entry: a log that a person edited. */
function parseEntry(line: Buffer): LogEntry | undefined {
  const entry = parseCriLogLine(line)
  if (entry === undefined) return undefined
  const stream = entry.stream === 'stderr' ? 'stderr' : 'stdout'
  const time = line.toString('latin1', 0, line.indexOf(' '))
  return { time, stream, partial: entry.partial, content: entry.content }
}
