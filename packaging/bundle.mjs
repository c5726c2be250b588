// The three programs as one CommonJS file each (on Node 22 and later an ESM import of node:http costs megabytes), and
// what stands in dist/bin for them. Packages and builtins that are imported late stay late.

import { build } from 'esbuild'
import { execFileSync } from 'node:child_process'
import { chmodSync, copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs'

const programs = { server: undefined, daemon: 'holdfastd', cli: 'holdfast' }

await build({
  entryPoints: Object.keys(programs).map((name) => `src/programs/${name}.ts`),
  outdir: 'dist/lib/holdfast',
  outExtension: { '.js': '.cjs' },
  bundle: true,
  platform: 'node',
  target: 'node20.19',
  format: 'cjs',
  minifyWhitespace: true,
  minifySyntax: true,
  external: ['bufferutil', 'utf-8-validate', 'node-pty'],
  define: { 'import.meta.url': 'bundleUrl', HOLDFAST_BUILD: JSON.stringify(buildInfo()) },
  banner: { js: 'const bundleUrl=require("node:url").pathToFileURL(__filename).href;' },
  logLevel: 'warning',
})
writeFileSync('dist/bin/package.json', '{"type":"commonjs"}\n')
writeFileSync('dist/lib/package.json', '{"type":"commonjs"}\n')
for (const [name, program] of Object.entries(programs)) {
  if (program === undefined) continue
  writeFileSync(`dist/bin/${program}`, `#!/usr/bin/env node\nrequire('../lib/holdfast/${name}.cjs')\n`)
  chmodSync(`dist/bin/${program}`, 0o755)
}
if (existsSync('proto/cri.proto')) copyFileSync('proto/cri.proto', 'dist/lib/holdfast/cri.proto')
// Where the keeper finds Node when nothing nearer is there.
writeFileSync('dist/lib/holdfast/node-path', process.execPath)

/** What `--version` tells. Outside a git checkout the commit is unknown. */
function buildInfo() {
  const git = (...args) => {
    try {
      return execFileSync('git', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
    } catch {
      return ''
    }
  }
  return {
    version: JSON.parse(readFileSync('package.json', 'utf8')).version,
    tag: git('describe', '--tags', '--always', '--dirty') || 'none',
    commit: git('rev-parse', 'HEAD') || 'unknown',
    date: new Date().toISOString().slice(0, 19).replace('T', ' '),
  }
}
