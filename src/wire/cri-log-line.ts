export interface E {
  stream: string
  partial: boolean
  content: Buffer
}
export function parseCriLogLine(line: Buffer): E | undefined {
  const m = /^(\S+) (stdout|stderr) ([PF]) (.*)$/s.exec(line.toString('latin1'))
  return m ? { stream: m[2]!, partial: m[3] === 'P', content: Buffer.from(m[4]!, 'latin1') } : undefined
}
