// One measure of the benchmarks: a figure of ours, usually a rival's beside it from the same run, and the budget.

/** What `npm run bench` prints, and with --json in these very words. */
export interface Measure {
  readonly name: string
  readonly value: number
  readonly unit: string
  /** Who was measured beside us; null: nobody. */
  readonly peer: string | null
  readonly peerValue: number | null
  /** value / peerValue. */
  readonly ratio: number | null
  /** What must hold: of the ratio, or of the value where a unit is named. */
  readonly budget: string
  readonly ok: boolean
}

/** A group of measures that are taken together. */
export interface Benchmark {
  readonly names: readonly string[]
  /** Needs the programs of test/interop/go. */
  readonly needsGo: boolean
  run(effort: Effort): Promise<Measure[]>
}

/** How much work a run is worth. */
export interface Effort {
  readonly rounds: number
  readonly bytes: number
  readonly quick: boolean
}

export const fullEffort: Effort = { rounds: 5, bytes: 1 << 30, quick: false }
export const quickEffort: Effort = { rounds: 1, bytes: 64 << 20, quick: true }

type RatioBudget = { readonly atLeast: number } | { readonly atMost: number }

/** A measure whose budget is a ratio to a rival; figures are the medians of what was seen. */
export function compare(
  what: { readonly name: string; readonly unit: string; readonly peer: string },
  ours: readonly number[],
  theirs: readonly number[],
  budget: RatioBudget,
): Measure {
  const [value, peerValue] = [median(ours), median(theirs)]
  const ratio = value / peerValue
  const ok = 'atLeast' in budget ? ratio >= budget.atLeast : ratio <= budget.atMost
  const text = 'atLeast' in budget ? `>= ${budget.atLeast}` : `<= ${budget.atMost}`
  return { ...what, value, peerValue, ratio, budget: text, ok }
}

/** A measure whose budget is a figure of its own; a rival is only shown. */
export function limit(
  what: { readonly name: string; readonly unit: string },
  value: number,
  atMost: number,
  rival?: { readonly peer: string; readonly peerValue: number },
): Measure {
  const { peer = null, peerValue = null } = rival ?? {}
  const ratio = peerValue === null ? null : value / peerValue
  return { ...what, value, peer, peerValue, ratio, budget: `<= ${atMost} ${what.unit}`, ok: value <= atMost }
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  const upper = sorted[middle] ?? NaN
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? NaN) + upper) / 2
}

/** One line for a person. */
export function lineOf(measure: Measure): string {
  const { name, value, unit, peer, peerValue, ratio, budget, ok } = measure
  const rival = peer === null || peerValue === null ? '' : `${peer} ${figure(peerValue)} ${unit}`
  return [
    name.padEnd(24),
    `${figure(value)} ${unit}`.padEnd(16),
    rival.padEnd(34),
    (ratio === null ? '' : `${ratio.toFixed(2)}x`).padEnd(8),
    `budget ${budget}`.padEnd(22),
    ok ? 'ok' : 'MISSED',
  ].join(' ')
}

function figure(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3)
}
