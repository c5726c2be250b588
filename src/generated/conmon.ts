// Made from proto/conmon.capnp by packaging/generate.sh. Do not edit.

import type { Interface, Method, StructTable } from '../capnp/schema.ts'

export type CgroupManager = 'systemd' | 'cgroupfs'
export const CgroupManager: readonly CgroupManager[] = ['systemd', 'cgroupfs']

export type LogDriverType = 'containerRuntimeInterface' | 'json' | 'journald'
export const LogDriverType: readonly LogDriverType[] = ['containerRuntimeInterface', 'json', 'journald']

export type Namespace = 'ipc' | 'net' | 'pid' | 'user' | 'uts'
export const Namespace: readonly Namespace[] = ['ipc', 'net', 'pid', 'user', 'uts']

export interface TextTextMapEntry {
  readonly key: string
  readonly value: string
}
export const TextTextMapEntry: StructTable<TextTextMapEntry> = {
  name: 'TextTextMapEntry',
  dataWords: 0,
  pointers: 2,
  fields: [
    { name: 'key', offset: 0, kind: 'text' },
    { name: 'value', offset: 1, kind: 'text' },
  ],
}

export interface VersionRequest {
  readonly verbose: boolean
  readonly metadata: readonly TextTextMapEntry[]
}
export const VersionRequest: StructTable<VersionRequest> = {
  name: 'VersionRequest',
  dataWords: 1,
  pointers: 1,
  retiredPointer: 0,
  fields: [
    { name: 'verbose', offset: 0, kind: 'bool' },
    { name: 'metadata', offset: 0, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
  ],
}

export interface VersionResponse {
  readonly processId: number
  readonly version: string
  readonly tag: string
  readonly commit: string
  readonly buildDate: string
  readonly target: string
  readonly rustVersion: string
  readonly cargoVersion: string
  readonly cargoTree: string
}
export const VersionResponse: StructTable<VersionResponse> = {
  name: 'VersionResponse',
  dataWords: 1,
  pointers: 8,
  retiredPointer: 8,
  fields: [
    { name: 'processId', offset: 0, kind: 'uint32' },
    { name: 'version', offset: 0, kind: 'text' },
    { name: 'tag', offset: 1, kind: 'text' },
    { name: 'commit', offset: 2, kind: 'text' },
    { name: 'buildDate', offset: 3, kind: 'text' },
    { name: 'target', offset: 4, kind: 'text' },
    { name: 'rustVersion', offset: 5, kind: 'text' },
    { name: 'cargoVersion', offset: 6, kind: 'text' },
    { name: 'cargoTree', offset: 7, kind: 'text' },
  ],
}

export interface LogDriver {
  readonly type: LogDriverType
  readonly path: string
  readonly maxSize: bigint
}
export const LogDriver: StructTable<LogDriver> = {
  name: 'LogDriver',
  dataWords: 2,
  pointers: 1,
  fields: [
    { name: 'type', offset: 0, kind: 'enum', names: LogDriverType },
    { name: 'path', offset: 0, kind: 'text' },
    { name: 'maxSize', offset: 64, kind: 'uint64' },
  ],
}

export interface CreateContainerRequest {
  readonly id: string
  readonly bundlePath: string
  readonly terminal: boolean
  readonly stdin: boolean
  readonly exitPaths: readonly string[]
  readonly oomExitPaths: readonly string[]
  readonly logDrivers: readonly LogDriver[]
  readonly cleanupCmd: readonly string[]
  readonly globalArgs: readonly string[]
  readonly commandArgs: readonly string[]
  readonly metadata: readonly TextTextMapEntry[]
  readonly envVars: readonly TextTextMapEntry[]
  readonly cgroupManager: CgroupManager
  readonly additionalFds: readonly bigint[]
  readonly leakFds: readonly bigint[]
}
export const CreateContainerRequest: StructTable<CreateContainerRequest> = {
  name: 'CreateContainerRequest',
  dataWords: 1,
  pointers: 12,
  retiredPointer: 8,
  fields: [
    { name: 'id', offset: 0, kind: 'text' },
    { name: 'bundlePath', offset: 1, kind: 'text' },
    { name: 'terminal', offset: 0, kind: 'bool' },
    { name: 'stdin', offset: 1, kind: 'bool' },
    { name: 'exitPaths', offset: 2, kind: 'list', element: { kind: 'text' } },
    { name: 'oomExitPaths', offset: 3, kind: 'list', element: { kind: 'text' } },
    { name: 'logDrivers', offset: 4, kind: 'list', element: { kind: 'struct', struct: LogDriver } },
    { name: 'cleanupCmd', offset: 5, kind: 'list', element: { kind: 'text' } },
    { name: 'globalArgs', offset: 6, kind: 'list', element: { kind: 'text' } },
    { name: 'commandArgs', offset: 7, kind: 'list', element: { kind: 'text' } },
    { name: 'metadata', offset: 8, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
    { name: 'envVars', offset: 9, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
    { name: 'cgroupManager', offset: 16, kind: 'enum', names: CgroupManager },
    { name: 'additionalFds', offset: 10, kind: 'list', element: { kind: 'uint64' } },
    { name: 'leakFds', offset: 11, kind: 'list', element: { kind: 'uint64' } },
  ],
}

export interface CreateContainerResponse {
  readonly containerPid: number
}
export const CreateContainerResponse: StructTable<CreateContainerResponse> = {
  name: 'CreateContainerResponse',
  dataWords: 1,
  pointers: 0,
  fields: [
    { name: 'containerPid', offset: 0, kind: 'uint32' },
  ],
}

export interface ExecSyncContainerRequest {
  readonly id: string
  readonly timeoutSec: bigint
  readonly command: readonly string[]
  readonly terminal: boolean
  readonly metadata: readonly TextTextMapEntry[]
  readonly envVars: readonly TextTextMapEntry[]
  readonly cgroupManager: CgroupManager
}
export const ExecSyncContainerRequest: StructTable<ExecSyncContainerRequest> = {
  name: 'ExecSyncContainerRequest',
  dataWords: 2,
  pointers: 4,
  retiredPointer: 2,
  fields: [
    { name: 'id', offset: 0, kind: 'text' },
    { name: 'timeoutSec', offset: 0, kind: 'uint64' },
    { name: 'command', offset: 1, kind: 'list', element: { kind: 'text' } },
    { name: 'terminal', offset: 64, kind: 'bool' },
    { name: 'metadata', offset: 2, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
    { name: 'envVars', offset: 3, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
    { name: 'cgroupManager', offset: 80, kind: 'enum', names: CgroupManager },
  ],
}

export interface ExecSyncContainerResponse {
  readonly exitCode: number
  readonly stdout: Buffer
  readonly stderr: Buffer
  readonly timedOut: boolean
}
export const ExecSyncContainerResponse: StructTable<ExecSyncContainerResponse> = {
  name: 'ExecSyncContainerResponse',
  dataWords: 1,
  pointers: 2,
  fields: [
    { name: 'exitCode', offset: 0, kind: 'int32' },
    { name: 'stdout', offset: 0, kind: 'data' },
    { name: 'stderr', offset: 1, kind: 'data' },
    { name: 'timedOut', offset: 32, kind: 'bool' },
  ],
}

export interface AttachRequest {
  readonly id: string
  readonly socketPath: string
  readonly execSessionId: string
  readonly stopAfterStdinEof: boolean
  readonly metadata: readonly TextTextMapEntry[]
}
export const AttachRequest: StructTable<AttachRequest> = {
  name: 'AttachRequest',
  dataWords: 1,
  pointers: 4,
  retiredPointer: 3,
  fields: [
    { name: 'id', offset: 0, kind: 'text' },
    { name: 'socketPath', offset: 1, kind: 'text' },
    { name: 'execSessionId', offset: 2, kind: 'text' },
    { name: 'stopAfterStdinEof', offset: 0, kind: 'bool' },
    { name: 'metadata', offset: 3, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
  ],
}

export type AttachResponse = Record<never, never>
export const AttachResponse: StructTable<AttachResponse> = {
  name: 'AttachResponse',
  dataWords: 0,
  pointers: 0,
  fields: [
  ],
}

export interface ReopenLogRequest {
  readonly id: string
  readonly metadata: readonly TextTextMapEntry[]
}
export const ReopenLogRequest: StructTable<ReopenLogRequest> = {
  name: 'ReopenLogRequest',
  dataWords: 0,
  pointers: 2,
  retiredPointer: 1,
  fields: [
    { name: 'id', offset: 0, kind: 'text' },
    { name: 'metadata', offset: 1, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
  ],
}

export type ReopenLogResponse = Record<never, never>
export const ReopenLogResponse: StructTable<ReopenLogResponse> = {
  name: 'ReopenLogResponse',
  dataWords: 0,
  pointers: 0,
  fields: [
  ],
}

export interface SetWindowSizeRequest {
  readonly id: string
  readonly width: number
  readonly height: number
  readonly metadata: readonly TextTextMapEntry[]
}
export const SetWindowSizeRequest: StructTable<SetWindowSizeRequest> = {
  name: 'SetWindowSizeRequest',
  dataWords: 1,
  pointers: 2,
  retiredPointer: 1,
  fields: [
    { name: 'id', offset: 0, kind: 'text' },
    { name: 'width', offset: 0, kind: 'uint16' },
    { name: 'height', offset: 16, kind: 'uint16' },
    { name: 'metadata', offset: 1, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
  ],
}

export type SetWindowSizeResponse = Record<never, never>
export const SetWindowSizeResponse: StructTable<SetWindowSizeResponse> = {
  name: 'SetWindowSizeResponse',
  dataWords: 0,
  pointers: 0,
  fields: [
  ],
}

export interface CreateNamespacesRequest {
  readonly namespaces: readonly Namespace[]
  readonly uidMappings: readonly string[]
  readonly gidMappings: readonly string[]
  readonly basePath: string
  readonly podId: string
  readonly metadata: readonly TextTextMapEntry[]
}
export const CreateNamespacesRequest: StructTable<CreateNamespacesRequest> = {
  name: 'CreateNamespacesRequest',
  dataWords: 0,
  pointers: 6,
  retiredPointer: 0,
  fields: [
    { name: 'namespaces', offset: 0, kind: 'list', element: { kind: 'enum', names: Namespace } },
    { name: 'uidMappings', offset: 1, kind: 'list', element: { kind: 'text' } },
    { name: 'gidMappings', offset: 2, kind: 'list', element: { kind: 'text' } },
    { name: 'basePath', offset: 3, kind: 'text' },
    { name: 'podId', offset: 4, kind: 'text' },
    { name: 'metadata', offset: 5, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
  ],
}

export interface NamespaceResponse {
  readonly type: Namespace
  readonly path: string
}
export const NamespaceResponse: StructTable<NamespaceResponse> = {
  name: 'NamespaceResponse',
  dataWords: 1,
  pointers: 1,
  fields: [
    { name: 'type', offset: 0, kind: 'enum', names: Namespace },
    { name: 'path', offset: 0, kind: 'text' },
  ],
}

export interface CreateNamespacesResponse {
  readonly namespaces: readonly NamespaceResponse[]
}
export const CreateNamespacesResponse: StructTable<CreateNamespacesResponse> = {
  name: 'CreateNamespacesResponse',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'namespaces', offset: 0, kind: 'list', element: { kind: 'struct', struct: NamespaceResponse } },
  ],
}

export interface StartFdSocketRequest {
  readonly metadata: readonly TextTextMapEntry[]
}
export const StartFdSocketRequest: StructTable<StartFdSocketRequest> = {
  name: 'StartFdSocketRequest',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'metadata', offset: 0, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
  ],
}

export interface StartFdSocketResponse {
  readonly path: string
}
export const StartFdSocketResponse: StructTable<StartFdSocketResponse> = {
  name: 'StartFdSocketResponse',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'path', offset: 0, kind: 'text' },
  ],
}

export interface ServeExecContainerRequest {
  readonly metadata: readonly TextTextMapEntry[]
  readonly id: string
  readonly command: readonly string[]
  readonly tty: boolean
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
  readonly cgroupManager: CgroupManager
}
export const ServeExecContainerRequest: StructTable<ServeExecContainerRequest> = {
  name: 'ServeExecContainerRequest',
  dataWords: 1,
  pointers: 3,
  fields: [
    { name: 'metadata', offset: 0, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
    { name: 'id', offset: 1, kind: 'text' },
    { name: 'command', offset: 2, kind: 'list', element: { kind: 'text' } },
    { name: 'tty', offset: 0, kind: 'bool' },
    { name: 'stdin', offset: 1, kind: 'bool' },
    { name: 'stdout', offset: 2, kind: 'bool' },
    { name: 'stderr', offset: 3, kind: 'bool' },
    { name: 'cgroupManager', offset: 16, kind: 'enum', names: CgroupManager },
  ],
}

export interface ServeExecContainerResponse {
  readonly url: string
}
export const ServeExecContainerResponse: StructTable<ServeExecContainerResponse> = {
  name: 'ServeExecContainerResponse',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'url', offset: 0, kind: 'text' },
  ],
}

export interface ServeAttachContainerRequest {
  readonly metadata: readonly TextTextMapEntry[]
  readonly id: string
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
}
export const ServeAttachContainerRequest: StructTable<ServeAttachContainerRequest> = {
  name: 'ServeAttachContainerRequest',
  dataWords: 1,
  pointers: 2,
  fields: [
    { name: 'metadata', offset: 0, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
    { name: 'id', offset: 1, kind: 'text' },
    { name: 'stdin', offset: 0, kind: 'bool' },
    { name: 'stdout', offset: 1, kind: 'bool' },
    { name: 'stderr', offset: 2, kind: 'bool' },
  ],
}

export interface ServeAttachContainerResponse {
  readonly url: string
}
export const ServeAttachContainerResponse: StructTable<ServeAttachContainerResponse> = {
  name: 'ServeAttachContainerResponse',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'url', offset: 0, kind: 'text' },
  ],
}

export interface ServePortForwardContainerRequest {
  readonly metadata: readonly TextTextMapEntry[]
  readonly netNsPath: string
}
export const ServePortForwardContainerRequest: StructTable<ServePortForwardContainerRequest> = {
  name: 'ServePortForwardContainerRequest',
  dataWords: 0,
  pointers: 2,
  fields: [
    { name: 'metadata', offset: 0, kind: 'list', element: { kind: 'struct', struct: TextTextMapEntry } },
    { name: 'netNsPath', offset: 1, kind: 'text' },
  ],
}

export interface ServePortForwardContainerResponse {
  readonly url: string
}
export const ServePortForwardContainerResponse: StructTable<ServePortForwardContainerResponse> = {
  name: 'ServePortForwardContainerResponse',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'url', offset: 0, kind: 'text' },
  ],
}

export interface VersionParams {
  readonly request: VersionRequest
}
export const VersionParams: StructTable<VersionParams> = {
  name: 'VersionParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: VersionRequest },
  ],
}

export interface VersionResults {
  readonly response: VersionResponse
}
export const VersionResults: StructTable<VersionResults> = {
  name: 'VersionResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: VersionResponse },
  ],
}

export interface CreateContainerParams {
  readonly request: CreateContainerRequest
}
export const CreateContainerParams: StructTable<CreateContainerParams> = {
  name: 'CreateContainerParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: CreateContainerRequest },
  ],
}

export interface CreateContainerResults {
  readonly response: CreateContainerResponse
}
export const CreateContainerResults: StructTable<CreateContainerResults> = {
  name: 'CreateContainerResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: CreateContainerResponse },
  ],
}

export interface ExecSyncContainerParams {
  readonly request: ExecSyncContainerRequest
}
export const ExecSyncContainerParams: StructTable<ExecSyncContainerParams> = {
  name: 'ExecSyncContainerParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: ExecSyncContainerRequest },
  ],
}

export interface ExecSyncContainerResults {
  readonly response: ExecSyncContainerResponse
}
export const ExecSyncContainerResults: StructTable<ExecSyncContainerResults> = {
  name: 'ExecSyncContainerResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: ExecSyncContainerResponse },
  ],
}

export interface AttachContainerParams {
  readonly request: AttachRequest
}
export const AttachContainerParams: StructTable<AttachContainerParams> = {
  name: 'AttachContainerParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: AttachRequest },
  ],
}

export interface AttachContainerResults {
  readonly response: AttachResponse
}
export const AttachContainerResults: StructTable<AttachContainerResults> = {
  name: 'AttachContainerResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: AttachResponse },
  ],
}

export interface ReopenLogContainerParams {
  readonly request: ReopenLogRequest
}
export const ReopenLogContainerParams: StructTable<ReopenLogContainerParams> = {
  name: 'ReopenLogContainerParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: ReopenLogRequest },
  ],
}

export interface ReopenLogContainerResults {
  readonly response: ReopenLogResponse
}
export const ReopenLogContainerResults: StructTable<ReopenLogContainerResults> = {
  name: 'ReopenLogContainerResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: ReopenLogResponse },
  ],
}

export interface SetWindowSizeContainerParams {
  readonly request: SetWindowSizeRequest
}
export const SetWindowSizeContainerParams: StructTable<SetWindowSizeContainerParams> = {
  name: 'SetWindowSizeContainerParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: SetWindowSizeRequest },
  ],
}

export interface SetWindowSizeContainerResults {
  readonly response: SetWindowSizeResponse
}
export const SetWindowSizeContainerResults: StructTable<SetWindowSizeContainerResults> = {
  name: 'SetWindowSizeContainerResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: SetWindowSizeResponse },
  ],
}

export interface CreateNamespacesParams {
  readonly request: CreateNamespacesRequest
}
export const CreateNamespacesParams: StructTable<CreateNamespacesParams> = {
  name: 'CreateNamespacesParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: CreateNamespacesRequest },
  ],
}

export interface CreateNamespacesResults {
  readonly response: CreateNamespacesResponse
}
export const CreateNamespacesResults: StructTable<CreateNamespacesResults> = {
  name: 'CreateNamespacesResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: CreateNamespacesResponse },
  ],
}

export interface StartFdSocketParams {
  readonly request: StartFdSocketRequest
}
export const StartFdSocketParams: StructTable<StartFdSocketParams> = {
  name: 'StartFdSocketParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: StartFdSocketRequest },
  ],
}

export interface StartFdSocketResults {
  readonly response: StartFdSocketResponse
}
export const StartFdSocketResults: StructTable<StartFdSocketResults> = {
  name: 'StartFdSocketResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: StartFdSocketResponse },
  ],
}

export interface ServeExecContainerParams {
  readonly request: ServeExecContainerRequest
}
export const ServeExecContainerParams: StructTable<ServeExecContainerParams> = {
  name: 'ServeExecContainerParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: ServeExecContainerRequest },
  ],
}

export interface ServeExecContainerResults {
  readonly response: ServeExecContainerResponse
}
export const ServeExecContainerResults: StructTable<ServeExecContainerResults> = {
  name: 'ServeExecContainerResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: ServeExecContainerResponse },
  ],
}

export interface ServeAttachContainerParams {
  readonly request: ServeAttachContainerRequest
}
export const ServeAttachContainerParams: StructTable<ServeAttachContainerParams> = {
  name: 'ServeAttachContainerParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: ServeAttachContainerRequest },
  ],
}

export interface ServeAttachContainerResults {
  readonly response: ServeAttachContainerResponse
}
export const ServeAttachContainerResults: StructTable<ServeAttachContainerResults> = {
  name: 'ServeAttachContainerResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: ServeAttachContainerResponse },
  ],
}

export interface ServePortForwardContainerParams {
  readonly request: ServePortForwardContainerRequest
}
export const ServePortForwardContainerParams: StructTable<ServePortForwardContainerParams> = {
  name: 'ServePortForwardContainerParams',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'request', offset: 0, kind: 'struct', struct: ServePortForwardContainerRequest },
  ],
}

export interface ServePortForwardContainerResults {
  readonly response: ServePortForwardContainerResponse
}
export const ServePortForwardContainerResults: StructTable<ServePortForwardContainerResults> = {
  name: 'ServePortForwardContainerResults',
  dataWords: 0,
  pointers: 1,
  fields: [
    { name: 'response', offset: 0, kind: 'struct', struct: ServePortForwardContainerResponse },
  ],
}

export interface ConmonMethods {
  readonly version: Method<VersionParams, VersionResults>
  readonly createContainer: Method<CreateContainerParams, CreateContainerResults>
  readonly execSyncContainer: Method<ExecSyncContainerParams, ExecSyncContainerResults>
  readonly attachContainer: Method<AttachContainerParams, AttachContainerResults>
  readonly reopenLogContainer: Method<ReopenLogContainerParams, ReopenLogContainerResults>
  readonly setWindowSizeContainer: Method<SetWindowSizeContainerParams, SetWindowSizeContainerResults>
  readonly createNamespaces: Method<CreateNamespacesParams, CreateNamespacesResults>
  readonly startFdSocket: Method<StartFdSocketParams, StartFdSocketResults>
  readonly serveExecContainer: Method<ServeExecContainerParams, ServeExecContainerResults>
  readonly serveAttachContainer: Method<ServeAttachContainerParams, ServeAttachContainerResults>
  readonly servePortForwardContainer: Method<ServePortForwardContainerParams, ServePortForwardContainerResults>
}
const ConmonId = 0xb737e899dd6633f1n
export const Conmon: Interface<ConmonMethods> = {
  name: 'Conmon',
  id: ConmonId,
  methods: {
    version: {
      name: 'version',
      interfaceId: ConmonId,
      ordinal: 0,
      params: VersionParams,
      results: VersionResults,
    },
    createContainer: {
      name: 'createContainer',
      interfaceId: ConmonId,
      ordinal: 1,
      params: CreateContainerParams,
      results: CreateContainerResults,
    },
    execSyncContainer: {
      name: 'execSyncContainer',
      interfaceId: ConmonId,
      ordinal: 2,
      params: ExecSyncContainerParams,
      results: ExecSyncContainerResults,
    },
    attachContainer: {
      name: 'attachContainer',
      interfaceId: ConmonId,
      ordinal: 3,
      params: AttachContainerParams,
      results: AttachContainerResults,
    },
    reopenLogContainer: {
      name: 'reopenLogContainer',
      interfaceId: ConmonId,
      ordinal: 4,
      params: ReopenLogContainerParams,
      results: ReopenLogContainerResults,
    },
    setWindowSizeContainer: {
      name: 'setWindowSizeContainer',
      interfaceId: ConmonId,
      ordinal: 5,
      params: SetWindowSizeContainerParams,
      results: SetWindowSizeContainerResults,
    },
    createNamespaces: {
      name: 'createNamespaces',
      interfaceId: ConmonId,
      ordinal: 6,
      params: CreateNamespacesParams,
      results: CreateNamespacesResults,
    },
    startFdSocket: {
      name: 'startFdSocket',
      interfaceId: ConmonId,
      ordinal: 7,
      params: StartFdSocketParams,
      results: StartFdSocketResults,
    },
    serveExecContainer: {
      name: 'serveExecContainer',
      interfaceId: ConmonId,
      ordinal: 8,
      params: ServeExecContainerParams,
      results: ServeExecContainerResults,
    },
    serveAttachContainer: {
      name: 'serveAttachContainer',
      interfaceId: ConmonId,
      ordinal: 9,
      params: ServeAttachContainerParams,
      results: ServeAttachContainerResults,
    },
    servePortForwardContainer: {
      name: 'servePortForwardContainer',
      interfaceId: ConmonId,
      ordinal: 10,
      params: ServePortForwardContainerParams,
      results: ServePortForwardContainerResults,
    },
  },
}
