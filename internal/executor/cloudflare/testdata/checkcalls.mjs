// Runs shared calls as the Worker does: node checkcalls.mjs REQUEST USAGE CALLS writes each of CALLS with what becomes
// of it, as JSON.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [request, usage, file] = process.argv.slice(2);
const { check, endpoints } = await import(pathToFileURL(request));
const { Meter } = await import(pathToFileURL(usage));
const { model, requests, answers } = JSON.parse(readFileSync(file, "utf8"));
const encoder = new TextEncoder();
const decoder = new TextDecoder();

function checked({ name, api, path, body }) {
  const route = { api, models: { m: model } };
  try {
    const c = check(encoder.encode(body), route, "main", endpoints[api][path]);
    return { name, sent: decoder.decode(c.body), most: c.most, cost: c.cost, stream: c.stream, hide: c.hide };
  } catch (refused) {
    if (refused.status === undefined) throw refused;
    return { name, status: refused.status, code: refused.code };
  }
}

function metered({ name, dialect, stream, hide, text, chunk }) {
  const meter = new Meter(dialect, stream ?? false, hide ?? false);
  const bytes = encoder.encode(text);
  const passed = [];
  for (let at = 0; at < bytes.length; at += chunk) passed.push(...meter.write(bytes.subarray(at, at + chunk)));
  const { rest, whole } = meter.end();
  passed.push(...rest);
  const { tokens, known, seen, bad, done } = meter;
  return { name, passed: decoder.decode(new Uint8Array(passed)), tokens, known, seen, bad, done, whole };
}

console.log(JSON.stringify({ requests: requests.map(checked), answers: answers.map(metered) }));
