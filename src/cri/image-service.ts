// runtime.v1.ImageService over the images there are. Pulling finds; it never fetches.

import { MonitorError } from '../base/errors.ts'
import type { Handlers } from './grpc-server.ts'
import type { ImageStore, StoredImage } from './image-store.ts'
import type { Image, ImageSpec } from './messages.ts'
import { required } from './status-messages.ts'
import { now } from './time.ts'

interface ImageRequest {
  readonly image: ImageSpec | null
}

/** `directory` is where images lie. */
export function imageHandlers(store: ImageStore, directory: string): Handlers {
  return {
    ListImages: ({ filter }: { filter: ImageRequest | null }) => {
      const name = filter?.image?.image ?? ''
      const found = name === '' ? store.list() : [store.find(name)].filter((image) => image !== undefined)
      return { images: found.map((image) => imageMessage(image)) }
    },
    ImageStatus: ({ image }: ImageRequest) => {
      const found = store.find(required('image', image).image)
      return { image: found === undefined ? null : imageMessage(found) }
    },
    PullImage: ({ image }: ImageRequest) => ({ imageRef: store.get(required('image', image).image).id }),
    RemoveImage: ({ image }: ImageRequest) => {
      const found = store.find(required('image', image).image)
      if (found === undefined) return {}
      const why = found.builtIn ? 'it is built in' : 'it was given with --image'
      throw new MonitorError('failed-precondition', `image ${found.names[0]} cannot be removed: ${why}`)
    },
    // Directories given with --image are somebody else's.
    ImageFsInfo: () => {
      const own = store.list().filter((image) => image.builtIn)
      const sum = (of: (image: StoredImage) => number): string =>
        String(own.reduce((all, one) => all + of(one), 0))
      const usage = {
        timestamp: now(),
        fsId: { mountpoint: directory },
        usedBytes: { value: sum(({ size }) => size) },
        inodesUsed: { value: sum(({ files }) => files) },
      }
      return { imageFilesystems: [usage], containerFilesystems: [] }
    },
  }
}

function imageMessage(image: StoredImage): Image {
  const user = image.defaults.user.split(':')[0] ?? ''
  const isNumber = /^\d+$/.test(user)
  return {
    id: image.id,
    repoTags: image.names.filter((name) => !name.includes('@')),
    repoDigests: image.names.filter((name) => name.includes('@')),
    size: String(image.size),
    spec: { image: image.names[0] ?? '' },
    uid: isNumber ? { value: user } : null,
    username: isNumber ? '' : user,
    pinned: true,
  }
}
