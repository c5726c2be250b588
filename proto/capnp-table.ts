// Code generator: a compiled schema (what `capnp compile -o-` writes) on stdin → one TypeScript module per schema file,
// with types and the tables of src/capnp/schema.ts, in the folder given. Run by packaging/generate.sh; the only user
// of capnp-ts outside tests. Knows what our schemas use, and refuses the rest.

import { readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { Message } from 'capnp-ts'
import * as schema from 'capnp-ts/src/std/schema.capnp.js'

const outputFolder = process.argv[2] ?? '.'
const request = new Message(readFileSync(0), false).getRoot(schema.CodeGeneratorRequest)
const nodes = new Map(request.getNodes().map((node) => [node.getId(), node]))

/** What our schemas use. */
const scalars = new Map([
  [schema.Type_Which.BOOL, { kind: 'bool', bits: 1, text: 'boolean' }],
  [schema.Type_Which.UINT8, { kind: 'uint8', bits: 8, text: 'number' }],
  [schema.Type_Which.UINT16, { kind: 'uint16', bits: 16, text: 'number' }],
  [schema.Type_Which.UINT32, { kind: 'uint32', bits: 32, text: 'number' }],
  [schema.Type_Which.INT32, { kind: 'int32', bits: 32, text: 'number' }],
  [schema.Type_Which.UINT64, { kind: 'uint64', bits: 64, text: 'bigint' }],
])

for (const file of request.getRequestedFiles().toArray()) {
  const node = nodeOf(file.getId())
  const name = basename(file.getFilename(), '.capnp')
  writeFileSync(join(outputFolder, `${name}.ts`), moduleText(node, basename(file.getFilename())))
}

function moduleText(file: schema.Node, fileName: string): string {
  const parts: string[] = []
  for (const node of nested(file)) {
    if (node.which() === schema.Node_Which.ENUM) parts.push(enumText(node))
  }
  for (const node of inOrder(nested(file).filter((each) => each.which() === schema.Node_Which.STRUCT))) {
    parts.push(structText(node))
  }
  for (const node of nested(file)) {
    if (node.which() === schema.Node_Which.INTERFACE) parts.push(interfaceText(node))
  }
  return [
    `// Made from proto/${fileName} by packaging/generate.sh. Do not edit.\n`,
    `import type { Interface, Method, StructTable } from '../capnp/schema.ts'\n`,
    ...parts,
  ].join('\n')
}

/** Everything declared in a node, outermost first, with the params and results of its methods. */
function nested(node: schema.Node): schema.Node[] {
  const declared = node.getNestedNodes().map((each) => nodeOf(each.getId()))
  const implicit =
    node.which() === schema.Node_Which.INTERFACE
      ? node
          .getInterface()
          .getMethods()
          .map((method) => [nodeOf(method.getParamStructType()), nodeOf(method.getResultStructType())])
          .flat()
          .filter((each) => each.getScopeId() === 0n)
      : []
  return [...declared.flatMap((each) => [each, ...nested(each)]), ...implicit]
}

/** A table that mentions another comes after it. */
function inOrder(structs: readonly schema.Node[]): schema.Node[] {
  const done = new Set<schema.Node>()
  const visit = (node: schema.Node): void => {
    if (done.has(node)) return
    for (const field of node.getStruct().getFields().toArray()) {
      const used = structOf(field.getSlot().getType())
      const declared = structs.find((each) => each.getId() === used)
      if (declared !== undefined) visit(declared)
    }
    done.add(node)
  }
  structs.forEach(visit)
  return [...done]
}

function structOf(type: schema.Type): bigint | undefined {
  if (type.which() === schema.Type_Which.STRUCT) return type.getStruct().getTypeId()
  return type.which() === schema.Type_Which.LIST ? structOf(type.getList().getElementType()) : undefined
}

function enumText(node: schema.Node): string {
  const names = node
    .getEnum()
    .getEnumerants()
    .map((each) => `'${each.getName()}'`)
  const type = nameOf(node)
  return `export type ${type} = ${names.join(' | ')}\nexport const ${type}: readonly ${type}[] = [${names.join(', ')}]\n`
}

function structText(node: schema.Node): string {
  const struct = node.getStruct()
  const fields = struct
    .getFields()
    .toArray()
    .toSorted((a, b) => a.getCodeOrder() - b.getCodeOrder())
  const kept = fields.filter((field) => field.getSlot().getType().which() !== schema.Type_Which.VOID)
  const name = nameOf(node)
  return [
    kept.length === 0 ? `export type ${name} = Record<never, never>` : `export interface ${name} {`,
    ...kept.map((field) => `  readonly ${field.getName()}: ${describe(field.getSlot().getType()).text}`),
    ...(kept.length === 0 ? [] : ['}']),
    `export const ${name}: StructTable<${name}> = {`,
    `  name: '${name}',`,
    `  dataWords: ${struct.getDataWordCount()},`,
    `  pointers: ${struct.getPointerCount()},`,
    ...retiredText(struct),
    '  fields: [',
    ...kept.map((field) => `    { name: '${field.getName()}', ${entryText(field)} },`),
    '  ],',
    '}\n',
  ].join('\n')
}

/** A Void field called metadataOld was a Data field once: its slot lies after the pointers of lower ordinals. */
function retiredText(struct: schema.Node_Struct): string[] {
  const fields = struct.getFields().toArray()
  const old = fields.find((field) => field.getName() === 'metadataOld')
  if (old === undefined) return []
  const before = fields.filter((field) => ordinalOf(field) < ordinalOf(old) && isPointer(field))
  return [`  retiredPointer: ${before.length},`]
}

function ordinalOf(field: schema.Field): number {
  return field.getOrdinal().getExplicit()
}

function isPointer(field: schema.Field): boolean {
  const type = field.getSlot().getType()
  return type.which() !== schema.Type_Which.VOID && describe(type).bits === 0
}

function interfaceText(node: schema.Node): string {
  const name = nameOf(node)
  const methods = node.getInterface().getMethods().toArray()
  return [
    `export interface ${name}Methods {`,
    ...methods.map(
      (method) =>
        `  readonly ${method.getName()}: Method<${nameOf(nodeOf(method.getParamStructType()))}, ${nameOf(nodeOf(method.getResultStructType()))}>`,
    ),
    '}',
    `const ${name}Id = 0x${node.getId().toString(16)}n`,
    `export const ${name}: Interface<${name}Methods> = {`,
    `  name: '${name}',`,
    `  id: ${name}Id,`,
    '  methods: {',
    ...methods.flatMap((method, ordinal) => [
      `    ${method.getName()}: {`,
      `      name: '${method.getName()}',`,
      `      interfaceId: ${name}Id,`,
      `      ordinal: ${ordinal},`,
      `      params: ${nameOf(nodeOf(method.getParamStructType()))},`,
      `      results: ${nameOf(nodeOf(method.getResultStructType()))},`,
      '    },',
    ]),
    '  },',
    '}\n',
  ].join('\n')
}

/** The TypeScript type, and the rest of the table's entry. */
function describe(type: schema.Type): { text: string; entry: string; bits: number } {
  const kinds = schema.Type_Which
  const which = type.which()
  const scalar = scalars.get(which)
  if (scalar !== undefined) return { text: scalar.text, entry: `kind: '${scalar.kind}'`, bits: scalar.bits }
  if (which === kinds.TEXT) return { text: 'string', entry: `kind: 'text'`, bits: 0 }
  if (which === kinds.DATA) return { text: 'Buffer', entry: `kind: 'data'`, bits: 0 }
  if (which === kinds.ENUM) {
    const text = nameOf(nodeOf(type.getEnum().getTypeId()))
    return { text, entry: `kind: 'enum', names: ${text}`, bits: 16 }
  }
  if (which === kinds.STRUCT) {
    const text = nameOf(nodeOf(type.getStruct().getTypeId()))
    return { text, entry: `kind: 'struct', struct: ${text}`, bits: 0 }
  }
  if (which !== kinds.LIST) throw new Error(`type ${which} is not supported`)
  const element = type.getList().getElementType()
  if (element.which() === kinds.LIST) throw new Error('lists of lists are not supported')
  const { text, entry } = describe(element)
  return { text: `readonly ${text}[]`, entry: `kind: 'list', element: { ${entry} }`, bits: 0 }
}

/** Place and type in the table; a scalar's offset is in bits. */
function entryText(field: schema.Field): string {
  const slot = field.getSlot()
  if (slot.getHadExplicitDefault()) throw new Error(`${field.getName()}: defaults are not supported`)
  const { entry, bits } = describe(slot.getType())
  return `offset: ${slot.getOffset() * (bits || 1)}, ${entry}`
}

/** `conmon.capnp:Conmon.LogDriver.Type` → `LogDriverType`; of a method's params: `VersionParams`. */
function nameOf(node: schema.Node): string {
  const name = node.getDisplayName().slice(node.getDisplayName().indexOf(':') + 1)
  const parts = name.split(/[.$]/)
  return (parts.length > 1 ? parts.slice(1) : parts)
    .map((part) => part.charAt(0).toUpperCase() + part.slice(1))
    .join('')
}

function nodeOf(id: bigint): schema.Node {
  const node = nodes.get(id)
  if (node === undefined) throw new Error(`no node 0x${id.toString(16)}`)
  return node
}
