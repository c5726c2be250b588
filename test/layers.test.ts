// The layer table of the architecture: which folder of src/ may import which, and who may load which package.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { test } from 'node:test'

const monitorParts = [
  'base',
  'container',
  'keeper',
  'log',
  'native',
  'oci',
  'pod',
  'stdio',
  'streaming',
  'wire',
]

/** Which folders each folder may import. A folder not listed here fails the test. */
const mayImport: Record<string, readonly string[]> = {
  base: [],
  wire: ['base'],
  capnp: ['base'],
  generated: ['capnp'],
  native: ['base'],
  keeper: ['base', 'native'],
  oci: ['base'],
  log: ['base', 'wire', 'native', 'keeper'],
  stdio: ['base', 'wire', 'native', 'keeper'],
  container: ['base', 'keeper', 'log', 'native', 'oci', 'stdio'],
  pod: ['base', 'keeper', 'native'],
  streaming: ['base', 'wire'],
  monitor: monitorParts,
  rpc: ['base', 'capnp', 'generated', 'monitor', 'native'],
  client: ['base', 'capnp', 'generated'],
  cri: ['base', 'client', 'generated', 'oci'],
  cli: ['base', 'client', 'generated', 'wire'],
  programs: [...monitorParts, 'capnp', 'generated', 'monitor', 'rpc', 'client', 'cri', 'cli'],
}

/** Packages that only these folders may load, because they are heavy or reach the kernel. */
const mayLoad: Record<string, readonly string[]> = {
  ws: ['streaming', 'cli'],
  'node-pty': ['pod', 'cli'],
  '@grpc/grpc-js': ['cri', 'cli'],
  '@grpc/proto-loader': ['cri', 'cli'],
}

const root = resolve(import.meta.dirname, '../../src')
/** Whole statements, as prettier writes them; a match never runs over the end of one. */
const importPattern =
  /^(?:import|export)\s+(?:type\s+)?(?:\{[^}]*\}|\*(?:\s+as\s+\w+)?|\w+)(?:\s*,\s*\{[^}]*\})?\s+from\s+'([^']+)'|^import\s+'([^']+)'|\bimport\('([^']+)'\)/gm

const imports = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts'))
  .flatMap((file) =>
    [...readFileSync(join(root, file), 'utf8').matchAll(importPattern)].map((match) => ({
      file,
      target: match[1] ?? match[2] ?? match[3] ?? '',
    })),
  )

test('each folder imports only the folders below it', () => {
  assert.ok(imports.length > 0)
  const violations = imports.flatMap(({ file, target }) => {
    const from = file.split('/')[0] ?? ''
    if (!target.startsWith('.')) return []
    const to = relative(root, resolve(root, dirname(file), target)).split('/')[0] ?? ''
    return to === from || mayImport[from]?.includes(to) ? [] : [`${file} imports ${to}`]
  })
  assert.deepEqual(violations, [])
})

test('packages are loaded only where the table says', () => {
  const violations = imports.flatMap(({ file, target }) => {
    if (target.startsWith('.') || target.startsWith('node:')) return []
    return mayLoad[target]?.includes(file.split('/')[0] ?? '') ? [] : [`${file} loads ${target}`]
  })
  assert.deepEqual(violations, [])
})
