// What a sandbox is made with. The other side is settings in worker.go.

import { Failure } from "./errors";

export interface Settings {
  // environment_id, lease_id, agent_did and generation say whose it is; they are labels of its container.
  environment_id: string;
  lease_id: string;
  agent_did: string;
  generation: number;
  environment_type: string;
  expiry_conditions: string[];
  image: string;
  // resources are those of its container, for whoever looks: the deployment has set them.
  resources: unknown;
  // env is set in every process.
  env: Record<string, string>;
  // config is written to /workspace/config.json before the first command of every start.
  config: string;
  // internet lets it connect to anything; without, it has no way out.
  internet: boolean;
  // deadline_us is in microseconds of Unix time: nothing runs past it.
  deadline_us: number;
  // ttl_ms ends it for good after so long without use, sleep_after_ms puts it to sleep; 0 means never.
  ttl_ms: number;
  sleep_after_ms: number;
  // lease_ttl_ms and lease_sleep_after_ms are what its lease has, for whoever looks.
  lease_ttl_ms: number;
  lease_sleep_after_ms: number;
}

// deadline in milliseconds of Unix time.
export function deadline(s: Settings): number {
  return Math.ceil(s.deadline_us / 1000);
}

// withoutSecrets leaves out what only the sandbox's own processes need: it is in no answer, no copy and no record of an
// ended sandbox.
export function withoutSecrets(s: Settings): Settings {
  return { ...s, env: {}, config: "" };
}

const strings = ["environment_id", "environment_type", "lease_id", "agent_did", "image", "config"] as const;
const durations = ["ttl_ms", "sleep_after_ms", "lease_ttl_ms", "lease_sleep_after_ms"] as const;

// maxTime is the largest time and duration in milliseconds: the year 10000.
const maxTime = 253_402_300_800_000;

export function parseSettings(body: Uint8Array): Settings {
  let s: Partial<Record<keyof Settings, unknown>>;
  try {
    s = JSON.parse(new TextDecoder().decode(body));
  } catch {
    throw new Failure("invalid", "the settings are not JSON");
  }
  const wrong: string[] = [];
  const check = (name: keyof Settings, holds: boolean, must: string) => {
    if (!holds) wrong.push(`${name} must be ${must}`);
  };
  for (const name of strings) check(name, typeof s[name] === "string", "a string");
  for (const name of durations) check(name, isBetween(s[name], 0, maxTime), "a number of milliseconds, 0 or more");
  check("generation", isBetween(s.generation, 0, Number.MAX_SAFE_INTEGER), "a whole number, 0 or more");
  check("deadline_us", isBetween(s.deadline_us, 1, Number.MAX_SAFE_INTEGER), "a time in microseconds: no sandbox runs for ever");
  check("expiry_conditions", Array.isArray(s.expiry_conditions) && s.expiry_conditions.every((c) => typeof c === "string"), "a list of strings");
  check("internet", typeof s.internet === "boolean", "true or false");
  check("env", isEnv(s.env), "an object of strings");
  if (wrong.length > 0) throw new Failure("invalid", `the settings are not valid: ${wrong.join("; ")}`);
  return s as Settings;
}

// Times are what may change of settings.
export type Times = Pick<Settings, (typeof durations)[number]>;

export function parseTimes(body: Uint8Array): Times {
  let t: Partial<Record<keyof Times, unknown>>;
  try {
    t = JSON.parse(new TextDecoder().decode(body));
  } catch {
    throw new Failure("invalid", "the times are not JSON");
  }
  const wrong = durations.filter((name) => !isBetween(t[name], 0, maxTime));
  if (wrong.length > 0) throw new Failure("invalid", `the times are not valid: ${wrong.join(", ")} must be a number of milliseconds, 0 or more`);
  const { ttl_ms, sleep_after_ms, lease_ttl_ms, lease_sleep_after_ms } = t as Times;
  return { ttl_ms, sleep_after_ms, lease_ttl_ms, lease_sleep_after_ms };
}

export function isEnv(v: unknown): v is Record<string, string> {
  return typeof v === "object" && v !== null && !Array.isArray(v) && Object.values(v).every((s) => typeof s === "string");
}

export function isBetween(v: unknown, least: number, most: number): v is number {
  return typeof v === "number" && Number.isInteger(v) && v >= least && v <= most;
}
