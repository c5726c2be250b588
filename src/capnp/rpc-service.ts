// What a server offers: an interface's methods bound to functions.

import type { Init, Interface, Method } from './schema.ts'

/** What a method's function learns about its call. */
export interface CallContext {
  /**
   * Aborted with a MonitorError as its reason: `canceled` when the caller gave up, `unavailable` when its connection is
   * gone.
   */
  readonly signal: AbortSignal
}

type Call<P, R> = (params: P, context: CallContext) => Init<R> | Promise<Init<R>>

/** One function per method of M. */
export type Implementation<M> = {
  readonly [K in keyof M]: M[K] extends Method<infer P, infer R> ? Call<P, R> : never
}

export interface BoundMethod {
  readonly method: Method<unknown, unknown>
  readonly call: Call<unknown, unknown>
  /** Its replies may be large: it waits while the peers leave too much unread. */
  readonly large: boolean
}

/** An interface and its functions. */
export interface Service {
  readonly interfaceId: bigint
  readonly name: string
  /** By ordinal. */
  readonly methods: ReadonlyMap<number, BoundMethod>
}

/** Binds each method of the interface; `large` names those whose replies may be large. */
export function bindService<M extends object>(
  definition: Interface<M>,
  implementation: Implementation<M>,
  large: readonly (keyof M)[] = [],
): Service {
  const methods = Object.entries(definition.methods).map(([name, method]) => {
    const bound: BoundMethod = {
      method: method as Method<unknown, unknown>,
      call: implementation[name as keyof M],
      large: large.includes(name as keyof M),
    }
    return [bound.method.ordinal, bound] as const
  })
  return { interfaceId: definition.id, name: definition.name, methods: new Map(methods) }
}
