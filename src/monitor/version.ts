// What this build is. The names are conmon-rs's, whose clients refuse empty fields (conmon.md §1.2, §2.3).

import type { VersionInfo } from './requests.ts'

// Replaced by the bundler; the unbundled tests run with the fallbacks.
declare const HOLDFAST_BUILD: { version: string; tag: string; commit: string; date: string } | undefined

const build =
  typeof HOLDFAST_BUILD === 'undefined'
    ? { version: '0.1.0', tag: 'none', commit: 'unknown', date: '1970-01-01 00:00:00' }
    : HOLDFAST_BUILD

const target = `${process.arch}-${process.platform}`
/** There is no Rust in here: these fields tell the language that stands in its place. */
const engine = `node ${process.versions.node}`

/** `processId` is the keeper's: the pid in the pidfile. */
export function versionInfo(processId: number, verbose: boolean): VersionInfo {
  return {
    processId,
    version: build.version,
    tag: build.tag,
    commit: build.commit,
    buildDate: build.date,
    target,
    rustVersion: engine,
    cargoVersion: `v8 ${process.versions.v8}`,
    cargoTree: verbose
      ? `holdfast ${build.version}\nnode ${process.versions.node}\nuv ${process.versions.uv}\n`
      : '',
  }
}

/** `--version`. */
export function versionText(full: boolean): string {
  const info = versionInfo(0, full)
  const lines = [
    `version: ${info.version}`,
    `tag: ${info.tag}`,
    `commit: ${info.commit}`,
    `build: ${info.buildDate}`,
    `target: ${info.target}`,
    info.rustVersion,
    info.cargoVersion,
  ]
  return `${lines.join('\n')}\n${full ? `\ncargo tree: ${info.cargoTree}` : ''}`
}

/** `--version-json`: one line, keys in conmon-rs's order. */
export function versionJson(full: boolean): string {
  const info = versionInfo(0, full)
  return `${JSON.stringify({
    verbose: full,
    version: info.version,
    tag: info.tag,
    commit: info.commit,
    build_date: info.buildDate,
    target: info.target,
    rust_version: info.rustVersion,
    cargo_version: info.cargoVersion,
    cargo_tree: info.cargoTree,
  })}\n`
}
