// The keeper against a server that means harm: no crash, no leak, nothing left. The long run is test/faults.

import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { builds, throwHostileServer } from './hostile.ts'

checkLeaks()

for (const build of builds) {
  test(`2500 hostile messages leave the ${build[0]} build alive, and nothing behind`, () =>
    throwHostileServer(build, 5, 500))
}
