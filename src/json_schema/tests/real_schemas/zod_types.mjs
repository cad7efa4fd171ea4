// Writes the schemas of forty types of zod: by version 4 itself, and by zod-to-json-schema for version 3.

import { writeFileSync } from "node:fs";
import * as zod4 from "zod";
import * as zod3 from "zod/v3";
import { zodToJsonSchema } from "zod-to-json-schema";

function types(z) {
  const address = z.object({ street: z.string().min(1).max(100), zip: z.string().regex(/^\d{4,5}$/) });
  const person = z.object({ name: z.string(), age: z.number().int().min(0).max(150), address: address.optional() });
  const cat = z.object({ kind: z.literal("cat"), lives: z.number() });
  const dog = z.object({ kind: z.literal("dog"), tricks: z.array(z.string()) });
  const tree = z.object({ value: z.number(), children: z.lazy(() => z.array(tree)) });
  return {
    text: z.string(),
    short_text: z.string().min(1).max(40),
    exact_text: z.string().length(8),
    email: z.string().email(),
    url: z.string().url(),
    uuid: z.string().uuid(),
    cuid: z.string().cuid(),
    cuid2: z.string().cuid2(),
    ulid: z.string().ulid(),
    nanoid: z.string().nanoid(),
    base64: z.string().base64(),
    date_time: z.string().datetime(),
    date_time_with_offset: z.string().datetime({ offset: true }),
    date: z.string().date(),
    time: z.string().time(),
    duration: z.string().duration(),
    emoji: z.string().emoji(),
    pattern: z.string().regex(/^[A-Z]{2}\d{6}$/),
    prefix: z.string().startsWith("sk-").endsWith("!").includes("."),
    number: z.number(),
    integer: z.number().int(),
    percentage: z.number().min(0).max(100).multipleOf(0.5),
    boolean: z.boolean(),
    literal: z.literal("a"),
    enumeration: z.enum(["red", "green", "blue"]),
    nullable_text: z.string().nullable(),
    array: z.array(z.string()),
    bounded_array: z.array(z.number()).min(1).max(1000000),
    tuple: z.tuple([z.string(), z.number()]),
    tuple_with_rest: z.tuple([z.string()]).rest(z.number()),
    record: z.record(z.string(), z.number()),
    object: person,
    strict_object: person.strict(),
    open_object: person.passthrough(),
    partial_object: person.partial(),
    union: z.union([z.string(), z.number(), z.array(z.number())]),
    discriminated_union: z.discriminatedUnion("kind", [cat, dog]),
    intersection: z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })),
    recursive_object: tree,
    page_of_objects: z.object({ items: z.array(person), next: z.string().optional() }),
  };
}

const target = process.argv[2];

function write(source, name, dialect, schema) {
  writeFileSync(`${target}/${source}__${name}.json`, JSON.stringify({ source, name, dialect, schema }));
}

const [modern, earlier] = [types(zod4.z), types(zod3.z)];
if (Object.keys(modern).length !== 40) throw new Error(`${Object.keys(modern).length} types`);
for (const [name, type] of Object.entries(modern)) write("zod-4", name, "2020-12", zod4.z.toJSONSchema(type));
for (const [name, type] of Object.entries(earlier)) write("zod-3", name, "draft-07", zodToJsonSchema(type));
