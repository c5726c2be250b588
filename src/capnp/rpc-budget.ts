// Bounds on the memory of all RPC connections of a process: replies that peers have not read yet, and messages that
// have not come whole. Calls with large replies wait here until there is room, in the order they came.

import {
  MAX_CONNECTION_REPLY_BYTES,
  MAX_TOTAL_REPLY_BYTES,
  MAX_TOTAL_REQUEST_BYTES,
  RESERVED_REPLY_BYTES,
} from '../base/limits.ts'
import { RpcException } from './rpc-exception.ts'

export interface RpcBudgetLimits {
  readonly connectionReplies: number
  readonly totalReplies: number
  readonly totalRequests: number
  readonly reservation: number
}

interface WaitingCall {
  readonly account: RpcAccount
  readonly start: () => void
}

/** Shared by the connections of a server. */
export class RpcBudget {
  readonly limits: RpcBudgetLimits
  readonly #waiting = new Set<WaitingCall>()
  /** Unread and reserved bytes of all accounts. */
  #replies = 0
  #requests = 0

  constructor(limits: Partial<RpcBudgetLimits> = {}) {
    this.limits = {
      connectionReplies: MAX_CONNECTION_REPLY_BYTES,
      totalReplies: MAX_TOTAL_REPLY_BYTES,
      totalRequests: MAX_TOTAL_REQUEST_BYTES,
      reservation: RESERVED_REPLY_BYTES,
      ...limits,
    }
  }

  /** A connection's part. Close it with the connection. */
  open(): RpcAccount {
    return new RpcAccount(this)
  }

  addReplies(bytes: number): void {
    this.#replies += bytes
    if (bytes < 0) this.#startWaiting()
  }

  addRequests(bytes: number): void {
    this.#requests += bytes
    if (bytes > 0 && this.#requests > this.limits.totalRequests) {
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
      if (this.#replies + this.limits.reservation > this.limits.totalReplies) return
      if (!call.account.hasRoom) continue
      this.#waiting.delete(call)
      call.start()
    }
  }
}

/** One connection's bytes. */
export class RpcAccount {
  readonly budget: RpcBudget
  #unread = 0
  #reserved = 0
  #requests = 0
  #closed = false

  constructor(budget: RpcBudget) {
    this.budget = budget
  }

  /** Whether the peer has left so much unread that nothing more should be read from it. */
  get isFull(): boolean {
    return this.#unread >= this.budget.limits.connectionReplies
  }

  /** Whether one more call with a large reply may run. */
  get hasRoom(): boolean {
    const { connectionReplies, reservation } = this.budget.limits
    return this.#unread + this.#reserved + reservation <= connectionReplies
  }

  /** A call with a large reply runs. Returns what ends that. */
  reserve(): () => void {
    const bytes = this.budget.limits.reservation
    this.#reserved += bytes
    this.budget.addReplies(bytes)
    return () => {
      if (this.#closed) return
      this.#reserved -= bytes
      this.budget.addReplies(-bytes)
    }
  }

  sent(bytes: number): void {
    if (this.#closed) return
    this.#unread += bytes
    this.budget.addReplies(bytes)
  }

  delivered(bytes: number): void {
    if (this.#closed) return
    this.#unread -= bytes
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
    this.budget.addReplies(-this.#unread - this.#reserved)
    this.budget.addRequests(-this.#requests)
  }
}
