// Splits JSON into members without decoding their values, so that numbers and texts reach the upstream as they were
// sent. The Go side is object in internal/gateway/llm/request.go.

import { type Refused, refuse } from "./refusal";

// Members are the members of an object by name; each value is JSON.
export type Members = Map<string, string>;

// parameterName is the form of all parameters. Some upstreams ignore the case of names: with another spelling, they
// could see a parameter that was not checked.
const parameterName = /^[a-z0-9_.:-]{1,128}$/;

// maxParts limits the members of an object and the items of a list that are checked one by one, because each takes more
// memory than its text. OpenAI allows 128 tools (read 2026-11).
const maxParts = 512;

// membersOf parses an object. It throws a text that says what is wrong. A duplicate key keeps the last value.
export function membersOf(text: string): Members {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw "it is not valid JSON";
  }
  if (value === null) throw "it is null";
  if (typeof value !== "object" || Array.isArray(value)) throw "it is not a JSON object";
  const members: Members = new Map();
  let n = 0;
  for (const piece of pieces(text)) {
    if (++n > maxParts) throw `it has more than ${maxParts} members`;
    const end = endOfString(piece, 0) + 1;
    const key = JSON.parse(piece.slice(0, end)) as string;
    if (!parameterName.test(key)) {
      throw `${JSON.stringify(key.slice(0, 128))} is not the name of a parameter: names are lower-case letters, digits and '_'`;
    }
    members.set(key, piece.slice(piece.indexOf(":", end) + 1).trim());
  }
  return members;
}

// encode returns the object as JSON. The upstream gets what was checked, without duplicate keys.
export function encode(members: Members): string {
  const all = [...members.keys()].sort().map((key) => `"${key}":${members.get(key)}`);
  return `{${all.join(",")}}`;
}

// has reports whether a member exists and is not null.
export function has(members: Members, key: string): boolean {
  return (members.get(key) ?? "null") !== "null";
}

const kinds = {
  string: ["a string", (v: unknown) => typeof v === "string"],
  boolean: ["true or false", (v: unknown) => typeof v === "boolean"],
  integer: ["a whole number", (_: unknown, text: string) => /^-?\d+$/.test(text) && Number.isSafeInteger(Number(text))],
  strings: ["a list of strings", (v: unknown) => Array.isArray(v) && v.every((s) => typeof s === "string" || s === null)],
} as const;

// read decodes a member; null if it is absent or null.
export function read(members: Members, key: string, kind: "string"): string | null;
export function read(members: Members, key: string, kind: "boolean"): boolean | null;
export function read(members: Members, key: string, kind: "integer"): number | null;
export function read(members: Members, key: string, kind: "strings"): string[] | null;
export function read(members: Members, key: string, kind: keyof typeof kinds): unknown {
  const text = members.get(key);
  if (text === undefined || text === "null") return null;
  const value: unknown = JSON.parse(text);
  const [must, holds] = kinds[kind];
  if (!holds(value, text)) throw wrongType(key, must);
  return value;
}

function wrongType(key: string, must: string): Refused {
  return refuse(400, "invalid", `${key} has a value of a wrong type: use ${must}`);
}

// itemsOf returns the items of a list, as JSON; null if it is absent or null.
export function itemsOf(members: Members, key: string): string[] | null {
  const text = members.get(key) ?? "null";
  if (text === "null") return null;
  if (!text.startsWith("[")) throw wrongType(key, "a list");
  const items: string[] = [];
  for (const piece of pieces(text)) {
    if (items.length === maxParts) throw refuse(400, "invalid", `${key} has more than ${maxParts} items: use fewer`);
    items.push(piece);
  }
  return items;
}

// stringsIn yields the strings in valid JSON without their quotes, and whether each is a key.
export function* stringsIn(text: string): Generator<[string, boolean]> {
  for (let i = 0; i < text.length; i++) {
    if (text[i] !== '"') continue;
    const end = endOfString(text, i);
    const inner = text.slice(i + 1, end);
    for (i = end + 1; /\s/.test(text[i] ?? ""); i++);
    yield [inner, text[i] === ":"];
    i--;
  }
}

// unescape decodes a JSON string that is given without its quotes.
export function unescape(inner: string): string {
  return inner.includes("\\") ? (JSON.parse(`"${inner}"`) as string) : inner;
}

// pieces yields the parts of a valid object or list between its commas.
function* pieces(text: string): Generator<string> {
  let [depth, begin] = [0, 0];
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '"') {
      i = endOfString(text, i);
    } else if (c === "{" || c === "[") {
      if (++depth === 1) begin = i + 1;
    } else if (c === "}" || c === "]" ? --depth === 0 : c === "," && depth === 1) {
      const piece = text.slice(begin, i).trim();
      if (piece !== "") yield piece;
      begin = i + 1;
    }
  }
}

// endOfString returns the index of the closing quote of the string that begins at i.
function endOfString(text: string, i: number): number {
  for (i++; i < text.length && text[i] !== '"'; i++) {
    if (text[i] === "\\") i++;
  }
  return i;
}
