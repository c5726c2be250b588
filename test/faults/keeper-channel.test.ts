// 20,000 mutated messages on the keeper's channel, to the static-like and to the sanitised build.

import { test } from 'node:test'
import { builds, throwHostileServer } from '../keeper/hostile.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

for (const build of builds) {
  test(`20,000 hostile messages leave the ${build[0]} build alive, and nothing behind`, () =>
    throwHostileServer(build, 20, 1000))
}
