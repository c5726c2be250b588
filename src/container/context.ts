// What everything in this folder works with: made once by the monitor.

import type { Diagnostics } from '../base/diagnostics.ts'
import type { KeeperClient } from '../keeper/keeper-client.ts'
import type { OciRuntime } from '../oci/oci-runtime.ts'
import type { ExitTable } from './exit-table.ts'

export interface ContainerContext {
  readonly keeper: KeeperClient
  readonly exits: ExitTable
  readonly runtime: OciRuntime
  readonly diagnostics: Diagnostics
  /** The monitor's runtime directory: pid files and console sockets of runs in flight. */
  readonly directory: string
  /** The monitor's binary, for `run-oci`. */
  readonly launcher: string
}
