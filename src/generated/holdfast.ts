// Made from proto/holdfast.capnp by packaging/generate.sh. Do not edit.

import type { Interface, Method, StructTable } from '../capnp/schema.ts'

export type Flag = 'unknown' | 'no' | 'yes'
export const Flag: readonly Flag[] = ['unknown', 'no', 'yes']

export type ContainerState = 'creating' | 'running' | 'exited'
export const ContainerState: readonly ContainerState[] = ['creating', 'running', 'exited']

export interface ServeAttachRequest {
  readonly id: string
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
  readonly tty: Flag
  readonly stdinOnce: Flag
  readonly replayBytes: number
}
export const ServeAttachRequest: StructTable<ServeAttachRequest> = {
  name: 'ServeAttachRequest',
  dataWords: 2,
  pointers: 1,
  fields: [
    { name: 'id', offset: 0, kind: 'text' },
    { name: 'stdin', offset: 0, kind: 'bool' },
    { name: 'stdout', offset: 1, kind: 'bool' },
    { name: 'stderr', offset: 2, kind: 'bool' },
    { name: 'tty', offset: 16, kind: 'enum', names: Flag },
    { name: 'stdinOnce', offset: 32, kind: 'enum', names: Flag },
    { name: 'replayBytes', offset: 64, kind: 'uint32' },
  ],
}

export interface ServePortForwardRequest {
  readonly netnsPath: string
  readonly podSandboxId: string
  readonly ports: readonly number[]
}
export const ServePortForwardRequest: StructTable<ServePortForwardRequest> = {
  name: 'ServePortForwardRequest',
  dataWords: 0,
  pointers: 3,
  fields: [
    { name: 'netnsPath', offset: 0, kind: 'text' },
    { name: 'podSandboxId', offset: 1, kind: 'text' },
    { name: 'ports', offset: 2, kind: 'list', element: { kind: 'uint16' } },
  ],
}

export interface ServeResponse {
  readonly url: string
}
export const ServeResponse: StructTable<ServeResponse> = {
  name: 'ServeResponse',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'url', offset: 0, kind: 'text' },
  ],
}

export type ListContainersRequest = Record<never, never>
export const ListContainersRequest: StructTable<ListContainersRequest> = {
  name: 'ListContainersRequest',
  dataWords: 0,
  pointers: 0,
  fields: [
  ],
}

export interface ContainerInfo {
  readonly id: string
  readonly pid: number
  readonly state: ContainerState
  readonly exitCode: number
  readonly terminal: boolean
  readonly sessions: number
}
export const ContainerInfo: StructTable<ContainerInfo> = {
  name: 'ContainerInfo',
  dataWords: 2,
  pointers: 1,
  fields: [
    { name: 'id', offset: 0, kind: 'text' },
    { name: 'pid', offset: 0, kind: 'uint32' },
    { name: 'state', offset: 32, kind: 'enum', names: ContainerState },
    { name: 'exitCode', offset: 64, kind: 'int32' },
    { name: 'terminal', offset: 48, kind: 'bool' },
    { name: 'sessions', offset: 96, kind: 'uint32' },
  ],
}

export interface ListContainersResponse {
  readonly containers: readonly ContainerInfo[]
}
export const ListContainersResponse: StructTable<ListContainersResponse> = {
  name: 'ListContainersResponse',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'containers', offset: 0, kind: 'list', element: { kind: 'struct', struct: ContainerInfo } },
  ],
}

export interface ServeAttachParams {
  readonly request: ServeAttachRequest
}
export const ServeAttachParams: StructTable<ServeAttachParams> = {
  name: 'ServeAttachParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: ServeAttachRequest },
  ],
}

export interface ServeAttachResults {
  readonly response: ServeResponse
}
export const ServeAttachResults: StructTable<ServeAttachResults> = {
  name: 'ServeAttachResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: ServeResponse },
  ],
}

export interface ServePortForwardParams {
  readonly request: ServePortForwardRequest
}
export const ServePortForwardParams: StructTable<ServePortForwardParams> = {
  name: 'ServePortForwardParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: ServePortForwardRequest },
  ],
}

export interface ServePortForwardResults {
  readonly response: ServeResponse
}
export const ServePortForwardResults: StructTable<ServePortForwardResults> = {
  name: 'ServePortForwardResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: ServeResponse },
  ],
}

export interface ListContainersParams {
  readonly request: ListContainersRequest
}
export const ListContainersParams: StructTable<ListContainersParams> = {
  name: 'ListContainersParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: ListContainersRequest },
  ],
}

export interface ListContainersResults {
  readonly response: ListContainersResponse
}
export const ListContainersResults: StructTable<ListContainersResults> = {
  name: 'ListContainersResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: ListContainersResponse },
  ],
}

export interface HoldfastMethods {
  readonly serveAttach: Method<ServeAttachParams, ServeAttachResults>
  readonly servePortForward: Method<ServePortForwardParams, ServePortForwardResults>
  readonly listContainers: Method<ListContainersParams, ListContainersResults>
}
const HoldfastId = 0x9561aa57cea0d00dn
export const Holdfast: Interface<HoldfastMethods> = {
  name: 'Holdfast',
  id: HoldfastId,
  methods: {
    serveAttach: {
      name: 'serveAttach',
      interfaceId: HoldfastId,
      ordinal: 0,
      params: ServeAttachParams,
      results: ServeAttachResults,
    },
    servePortForward: {
      name: 'servePortForward',
      interfaceId: HoldfastId,
      ordinal: 1,
      params: ServePortForwardParams,
      results: ServePortForwardResults,
    },
    listContainers: {
      name: 'listContainers',
      interfaceId: HoldfastId,
      ordinal: 2,
      params: ListContainersParams,
      results: ListContainersResults,
    },
  },
}
