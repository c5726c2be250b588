import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readFile, readlink, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { MonitorError } from '../../src/base/errors.ts'
import { imageHandlers } from '../../src/cri/image-service.ts'
import { fullName, ImageStore, isStatic } from '../../src/cri/image-store.ts'
import { resolveUser } from '../../src/cri/image-user.ts'
import type { UserRequest } from '../../src/cri/image-user.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

let root = ''
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-images-'))
})
after(async () => {
  await rm(root, { recursive: true, force: true })
})

describe('image names', () => {
  const cases = [
    ['busybox', 'docker.io/library/busybox:latest'],
    ['busybox:1.36', 'docker.io/library/busybox:1.36'],
    ['me/tool', 'docker.io/me/tool:latest'],
    ['docker.io/library/busybox', 'docker.io/library/busybox:latest'],
    ['localhost/tool:2', 'localhost/tool:2'],
    ['registry.k8s.io/e2e-test-images/busybox:1.29-2', 'registry.k8s.io/e2e-test-images/busybox:1.29-2'],
    ['host:5000/a/b', 'host:5000/a/b:latest'],
    ['busybox@sha256:ab', 'docker.io/library/busybox@sha256:ab'],
    ['busybox:1@sha256:ab', 'docker.io/library/busybox:1'],
  ] as const
  for (const [name, full] of cases) {
    test(`${name} in full is ${full}`, () => {
      assert.equal(fullName(name), full)
    })
  }
})

describe('the image store', () => {
  test('makes the built-in image from a static busybox, once', async () => {
    const directory = join(root, 'images')
    const store = new ImageStore()
    await store.addBuiltIn(directory)
    assert.equal(store.missing, '')
    const image = store.get('busybox')
    assert.equal(await readlink(join(image.rootfs, 'bin/ls')), 'busybox')
    // Its own name is in the list of applets: the program must not be replaced by a link to itself.
    assert.ok(isStatic(await readFile(join(image.rootfs, 'bin/busybox'))))
    await writeFile(join(image.rootfs, 'mark'), '')
    const again = new ImageStore()
    await again.addBuiltIn(directory)
    assert.equal(again.get('holdfast.local/busybox').id, image.id)
    assert.equal(await readFile(join(again.get('busybox').rootfs, 'mark'), 'utf8'), '')
  })

  test('finds by id and by the beginning of an id', async () => {
    const store = new ImageStore()
    await store.addBuiltIn(join(root, 'images'))
    const { id } = store.get('busybox')
    assert.equal(store.find(id)?.id, id)
    assert.equal(store.find(id.slice(0, 19))?.id, id)
    assert.equal(store.find('sha256:'), undefined)
    assert.equal(store.find(''), undefined)
  })

  test('says what there is when asked for something else', () => {
    const store = new ImageStore()
    assert.throws(
      () => store.get('nginx'),
      (error) =>
        error instanceof MonitorError &&
        error.code === 'not-found' &&
        /image nginx not found.*--image/.test(error.message),
    )
  })

  test('takes a directory with its configuration', async () => {
    const rootfs = join(root, 'web')
    await mkdir(rootfs)
    const config = {
      Entrypoint: ['/bin/httpd'],
      Cmd: ['-f'],
      Env: ['A=b'],
      WorkingDir: '/w',
      User: 'www',
      StopSignal: 'SIGQUIT',
    }
    await writeFile(`${rootfs}.json`, JSON.stringify({ config }))
    const store = new ImageStore()
    await store.addDirectory('my.reg/web', rootfs)
    const { defaults, names, builtIn } = store.get('my.reg/web:latest')
    assert.deepEqual(names, ['my.reg/web:latest'])
    assert.equal(builtIn, false)
    assert.deepEqual(defaults, {
      entrypoint: ['/bin/httpd'],
      cmd: ['-f'],
      env: ['A=b'],
      workingDir: '/w',
      user: 'www',
      stopSignal: 'SIGQUIT',
    })
  })

  test('refuses what is no directory, and a configuration that is no JSON', async () => {
    const store = new ImageStore()
    await assert.rejects(store.addDirectory('x', join(root, 'none')), /is no directory/)
    await mkdir(join(root, 'broken'))
    await writeFile(join(root, 'broken.json'), '{')
    await assert.rejects(store.addDirectory('x', join(root, 'broken')), /image x: read .*broken.json/)
  })

  test('tells a static program from others', () => {
    assert.equal(isStatic(Buffer.alloc(0)), false)
    assert.equal(isStatic(Buffer.from('#!/bin/sh\n'.padEnd(100))), false)
    const elf = Buffer.alloc(256)
    Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1]).copy(elf)
    elf.writeBigUInt64LE(64n, 32)
    elf.writeUInt16LE(56, 54)
    elf.writeUInt16LE(2, 56)
    elf.writeUInt32LE(1, 64)
    elf.writeUInt32LE(6, 120)
    assert.equal(isStatic(elf), true)
    elf.writeUInt32LE(3, 120)
    assert.equal(isStatic(elf), false)
    elf.writeUInt16LE(9, 56)
    assert.equal(isStatic(elf), false)
  })
})

describe('the image service', () => {
  async function call(method: string, request: object): Promise<Record<string, unknown>> {
    const store = new ImageStore()
    await store.addBuiltIn(join(root, 'images'))
    const handler = imageHandlers(store, root)[method]
    return (await handler?.(request as never, new AbortController().signal)) as Record<string, unknown>
  }

  test('knows an image or says nothing about it', async () => {
    assert.equal((await call('ImageStatus', { image: { image: 'nginx' } }))['image'], null)
    const { image } = await call('ImageStatus', { image: { image: 'busybox' } })
    assert.equal((image as { repoTags: string[] }).repoTags[0], 'docker.io/library/busybox:latest')
  })

  test('pulls what is there already', async () => {
    const { imageRef } = await call('PullImage', { image: { image: 'docker.io/library/busybox:latest' } })
    assert.match(String(imageRef), /^sha256:[0-9a-f]{64}$/)
    await assert.rejects(call('PullImage', { image: { image: 'nginx' } }), /image nginx not found/)
    await assert.rejects(call('PullImage', { image: null }), /missing required image/)
  })

  test('filters, and does not remove what is built in', async () => {
    assert.equal(((await call('ListImages', { filter: null }))['images'] as object[]).length, 1)
    const none = await call('ListImages', { filter: { image: { image: 'nginx' } } })
    assert.deepEqual(none['images'], [])
    assert.deepEqual(await call('RemoveImage', { image: { image: 'nginx' } }), {})
    await assert.rejects(
      call('RemoveImage', { image: { image: 'busybox' } }),
      /cannot be removed: it is built in/,
    )
  })
})

describe('users of an image', () => {
  const nothing: UserRequest = {
    uid: undefined,
    gid: undefined,
    username: '',
    supplementalGroups: [],
    mergeGroups: true,
    imageUser: '',
  }
  let rootfs = ''
  before(async () => {
    rootfs = join(root, 'users')
    await mkdir(join(rootfs, 'etc'), { recursive: true })
    await writeFile(
      join(rootfs, 'etc/passwd'),
      'root:x:0:0::/root:/bin/sh\nwww:x:33:34::/var/www:/bin/false\nbroken\n',
    )
    await writeFile(join(rootfs, 'etc/group'), 'root:x:0:\nwww:x:34:\nlogs:x:50:www,other\n')
  })

  const cases: { name: string; request: Partial<UserRequest>; expected: object }[] = [
    { name: 'root by default', request: {}, expected: { uid: 0, gid: 0, additionalGids: [], home: '/root' } },
    {
      name: 'a name with its groups',
      request: { username: 'www', supplementalGroups: [7] },
      expected: { uid: 33, gid: 34, additionalGids: [7, 50], home: '/var/www' },
    },
    {
      name: 'a name without the groups of the image',
      request: { username: 'www', mergeGroups: false },
      expected: { uid: 33, gid: 34, additionalGids: [], home: '/var/www' },
    },
    {
      name: 'a number nobody has',
      request: { uid: 1234 },
      expected: { uid: 1234, gid: 0, additionalGids: [], home: '/' },
    },
    {
      name: 'a number and a group',
      request: { uid: 33, gid: 9 },
      expected: { uid: 33, gid: 9, additionalGids: [50], home: '/var/www' },
    },
    {
      name: "the image's own",
      request: { imageUser: 'www:logs' },
      expected: { uid: 33, gid: 50, additionalGids: [], home: '/var/www' },
    },
    {
      name: "numbers of the image's own",
      request: { imageUser: '5:6' },
      expected: { uid: 5, gid: 6, additionalGids: [], home: '/' },
    },
    {
      name: "the client's before the image's",
      request: { uid: 0, imageUser: 'www:logs' },
      expected: { uid: 0, gid: 0, additionalGids: [], home: '/root' },
    },
  ]
  for (const { name, request, expected } of cases) {
    test(`are ${name}`, async () => {
      assert.deepEqual(await resolveUser(rootfs, { ...nothing, ...request }), expected)
    })
  }

  test('that are not there are refused by name', async () => {
    await assert.rejects(
      resolveUser(rootfs, { ...nothing, username: 'ghost' }),
      /user "ghost" is not in the image/,
    )
    await assert.rejects(
      resolveUser(rootfs, { ...nothing, imageUser: 'www:ghosts' }),
      /group "ghosts" is not/,
    )
  })

  test('are never read through a link of the image', async () => {
    const evil = join(root, 'evil')
    await mkdir(join(evil, 'etc'), { recursive: true })
    await symlink('/etc/passwd', join(evil, 'etc/passwd'))
    await assert.rejects(
      resolveUser(evil, { ...nothing, username: 'daemon' }),
      /user "daemon" is not in the image/,
    )
  })
})
