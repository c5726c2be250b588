// Users and groups by name, from the files of an image. What an image says is data: its links are not followed.

import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { isErrno, MonitorError } from '../base/errors.ts'

/** Who a process runs as. */
export interface ProcessUser {
  readonly uid: number
  readonly gid: number
  readonly additionalGids: readonly number[]
  /** Of the passwd entry; '/' without one. */
  readonly home: string
}

/** What was asked for; undefined and empty: nothing. */
export interface UserRequest {
  readonly uid: number | undefined
  readonly gid: number | undefined
  readonly username: string
  readonly supplementalGroups: readonly number[]
  /** False: the image's /etc/group adds nothing. */
  readonly mergeGroups: boolean
  /** `user`, `uid`, `user:group` or `uid:gid`, of the image's configuration. */
  readonly imageUser: string
}

interface PasswdEntry {
  readonly name: string
  readonly uid: number
  readonly gid: number
  readonly home: string
}

const maxFileBytes = 1024 * 1024

/** Resolves a request against /etc/passwd and /etc/group of a root file system. */
export async function resolveUser(rootfs: string, request: UserRequest): Promise<ProcessUser> {
  const passwd = parsePasswd(await readImageFile(rootfs, 'etc/passwd'))
  const groups = parseGroups(await readImageFile(rootfs, 'etc/group'))
  const [imageUser = '', imageGroup = ''] = request.imageUser.split(':')
  const asked = request.uid !== undefined || request.username !== ''
  const entry = findUser(passwd, asked ? request : { uid: undefined, username: imageUser })
  const gid = request.gid ?? (asked ? undefined : findGroup(groups, imageGroup)) ?? entry.gid
  const named = request.mergeGroups
    ? groups.filter(({ members }) => members.includes(entry.name)).map((group) => group.gid)
    : []
  const additionalGids = [...new Set([...request.supplementalGroups, ...named])].filter(
    (group) => group !== gid,
  )
  return { uid: entry.uid, gid, additionalGids, home: entry.home === '' ? '/' : entry.home }
}

function findUser(
  passwd: readonly PasswdEntry[],
  { uid, username }: { uid: number | undefined; username: string },
): PasswdEntry {
  const number = uid ?? (username === '' ? 0 : /^\d+$/.test(username) ? Number(username) : undefined)
  const found = passwd.find((entry) =>
    number === undefined ? entry.name === username : entry.uid === number,
  )
  if (found !== undefined) return found
  if (number === undefined) {
    throw new MonitorError(
      'invalid-argument',
      `user ${JSON.stringify(username)} is not in the image's /etc/passwd`,
    )
  }
  return { name: '', uid: number, gid: 0, home: '' }
}

function findGroup(groups: readonly { name: string; gid: number }[], name: string): number | undefined {
  if (name === '') return undefined
  if (/^\d+$/.test(name)) return Number(name)
  const found = groups.find((group) => group.name === name)
  if (found === undefined) {
    throw new MonitorError(
      'invalid-argument',
      `group ${JSON.stringify(name)} is not in the image's /etc/group`,
    )
  }
  return found.gid
}

function parsePasswd(text: string): PasswdEntry[] {
  return text.split('\n').flatMap((line) => {
    const [name = '', , uid = '', gid = '', , home = ''] = line.split(':')
    return /^\d+$/.test(uid) && /^\d+$/.test(gid) ? [{ name, uid: Number(uid), gid: Number(gid), home }] : []
  })
}

function parseGroups(text: string): { name: string; gid: number; members: string[] }[] {
  return text.split('\n').flatMap((line) => {
    const [name = '', , gid = '', members = ''] = line.split(':')
    return /^\d+$/.test(gid) ? [{ name, gid: Number(gid), members: members.split(',').filter(Boolean) }] : []
  })
}

/** Empty when there is no such plain file. */
async function readImageFile(rootfs: string, path: string): Promise<string> {
  try {
    const file = await open(
      join(rootfs, path),
      constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK,
    )
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(maxFileBytes), 0, maxFileBytes, 0)
      return buffer.toString('utf8', 0, bytesRead)
    } finally {
      await file.close()
    }
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'ELOOP', 'EISDIR')) return ''
    throw MonitorError.within(`read ${path} of the image`, error)
  }
}
