import type { RemoteStdio } from '../base/remote-stdio.ts'
export class AttachSocket {
  constructor(_p: string, _f: (r: RemoteStdio) => Promise<void>) {}
  close() {}
}
