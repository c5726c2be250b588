// Times as the CRI has them: nanoseconds since 1970, in decimal.

/** Now. Two calls never give the same time, so that lists keep their order. */
export function now(): string {
  const time = BigInt(Date.now()) * 1_000_000n
  last = time > last ? time : last + 1n
  return String(last)
}

/** A time in milliseconds, as file times are. */
export function fromMilliseconds(milliseconds: number): string {
  return String(BigInt(Math.trunc(milliseconds * 1000)) * 1000n)
}

let last = 0n
