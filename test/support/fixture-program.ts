// Compiles the small C programs of test/fixtures, once per change.

import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, statSync } from 'node:fs'
import { join } from 'node:path'

const root = join(import.meta.dirname, '../../..')

/** The path of the compiled `test/fixtures/NAME.c`. */
export function fixtureProgram(name: string): string {
  const source = join(root, `test/fixtures/${name}.c`)
  const output = join(root, `dist/test/fixtures/${name}`)
  const built = statSync(output, { throwIfNoEntry: false })
  if (built !== undefined && built.mtimeMs > statSync(source).mtimeMs) return output
  mkdirSync(join(root, 'dist/test/fixtures'), { recursive: true })
  // Under a name of its own first: another test file may be compiling the same.
  const part = `${output}.${process.pid}`
  execFileSync(process.env['CC'] ?? 'cc', ['-O1', '-Wall', '-Wextra', '-Werror', '-o', part, source])
  renameSync(part, output)
  return output
}
