// Bounds on the memory of all RPC connections of a process: replies that peers have not read yet, and messages that
// have not come whole. Calls with large replies wait here until there is room, in the order they came.

import { MAX_CONNECTION_REPLY_BYTES, MAX_TOTAL_REPLY_BYTES, MAX_TOTAL_REQUEST_BYTES } from '../base/limits.ts'
import { RpcException } from './rpc-exception.ts'

interface Limits {
  readonly connectionReplies: number
  readonly totalReplies: number
  readonly totalRequests: number
}

interface WaitingCall {
  readonly account: RpcAccount
  readonly start: () => void
}

/** Shared by the connections of a server. */
export class RpcBudget {
  readonly #limits: Limits
  readonly #waiting = new Set<WaitingCall>()
  #replies = 0
  #requests = 0

  constructor(limits: Partial<Limits> = {}) {
    this.#limits = {
      connectionReplies: MAX_CONNECTION_REPLY_BYTES,
      totalReplies: MAX_TOTAL_REPLY_BYTES,
      totalRequests: MAX_TOTAL_REQUEST_BYTES,
      ...limits,
    }
  }

  /** A connection's part. Close it with the connection. */
  open(): RpcAccount {
    return new RpcAccount(this)
  }

  /** Whether this connection's peer has left too much unread to be read from. */
  isFull(account: RpcAccount): boolean {
    return account.replies >= this.#limits.connectionReplies
  }

  addReplies(bytes: number): void {
    this.#replies += bytes
    if (bytes < 0) this.#startWaiting()
  }

  addRequests(bytes: number): void {
    this.#requests += bytes
    if (bytes > 0 && this.#requests > this.#limits.totalRequests) {
      throw new RpcException('overloaded', 'too many bytes of unfinished messages')
    }
  }

  /** Calls `start`, now or when there is room. Returns what takes the call back. */
  whenRoom(account: RpcAccount, start: () => void): () => void {
    const call = { account, start }
    this.#waiting.add(call)
    this.#startWaiting()
    return () => {
      this.#waiting.delete(call)
    }
  }

  #startWaiting(): void {
    for (const call of this.#waiting) {
      if (this.#replies >= this.#limits.totalReplies) return
      if (this.isFull(call.account)) continue
      this.#waiting.delete(call)
      call.start()
    }
  }
}

/** One connection's bytes. */
export class RpcAccount {
  readonly budget: RpcBudget
  #replies = 0
  #requests = 0
  #closed = false

  constructor(budget: RpcBudget) {
    this.budget = budget
  }

  /** Bytes sent that the peer has not taken. */
  get replies(): number {
    return this.#replies
  }

  sent(bytes: number): void {
    if (this.#closed) return
    this.#replies += bytes
    this.budget.addReplies(bytes)
  }

  delivered(bytes: number): void {
    if (this.#closed) return
    this.#replies -= bytes
    this.budget.addReplies(-bytes)
  }

  /** Bytes received that are no whole message yet. Throws when all connections together have too many. */
  setRequests(bytes: number): void {
    const change = bytes - this.#requests
    this.#requests = bytes
    this.budget.addRequests(change)
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.budget.addReplies(-this.#replies)
    this.budget.addRequests(-this.#requests)
    this.#replies = 0
  }
}
