// The settings with which a sandbox is created. The Go side is settings in lifecycle.go.

import { type Choice, isChoice } from "./choice";
import { Failure } from "./errors";

export interface Settings {
  // environment_id, lease_id, agent_did and generation identify the lease. The container has all but agent_did as
  // labels.
  environment_id: string;
  lease_id: string;
  agent_did: string;
  generation: number;
  environment_type: string;
  expiry_conditions: string[];
  image: string;
  // resources is the size of the container, for the status only: the deployment or the choice sets the size.
  resources: unknown;
  // env is set in every process.
  env: Record<string, string>;
  // config is written to /workspace/config.json at every start, before the first command.
  config: string;
  // internet allows all outgoing connections. Without it, only a restricted network lets requests out.
  internet: boolean;
  // restricted: HTTP and HTTPS requests pass through this Worker, which enforces the environment's rules.
  restricted?: boolean;
  // llm: the sandbox calls models through this Worker.
  llm?: boolean;
  // keep_disk: the disk outlives a sleep, as a snapshot of the container.
  keep_disk?: boolean;
  // deadline_us is in microseconds of Unix time. Nothing runs past it.
  deadline_us: number;
  // ttl_ms is how long the sandbox may be unused before it ends for good, sleep_after_ms before it sleeps. 0 means
  // never.
  ttl_ms: number;
  sleep_after_ms: number;
  // lease_ttl_ms and lease_sleep_after_ms are the lease's own limits, for its row in sandbox_leases.
  lease_ttl_ms: number;
  lease_sleep_after_ms: number;
  // choice is what each start chooses; absent if the application has one image and size.
  choice?: Choice;
}

// deadline returns the deadline in milliseconds of Unix time.
export function deadline(s: Settings): number {
  return Math.ceil(s.deadline_us / 1000);
}

// withoutSecrets removes what only the sandbox's own processes need. Answers, copies and records of ended sandboxes
// must not have it.
export function withoutSecrets(s: Settings): Settings {
  return { ...s, env: {}, config: "" };
}

const strings = ["environment_id", "environment_type", "lease_id", "agent_did", "image", "config"] as const;
const durations = ["ttl_ms", "sleep_after_ms", "lease_ttl_ms", "lease_sleep_after_ms"] as const;

// maxTime is the largest time and duration, in milliseconds: the year 10000.
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
  check("choice", s.choice === undefined || isChoice(s.choice), "an image with a digest, and a size of a start");
  for (const name of strings) check(name, typeof s[name] === "string", "a string");
  for (const name of durations) check(name, isBetween(s[name], 0, maxTime), "a number of milliseconds, 0 or more");
  check("generation", isBetween(s.generation, 0, Number.MAX_SAFE_INTEGER), "a whole number, 0 or more");
  check("deadline_us", isBetween(s.deadline_us, 1, Number.MAX_SAFE_INTEGER), "a time in microseconds: no sandbox runs for ever");
  check("expiry_conditions", Array.isArray(s.expiry_conditions) && s.expiry_conditions.every((c) => typeof c === "string"), "a list of strings");
  check("internet", typeof s.internet === "boolean", "true or false");
  check("restricted", s.restricted === undefined || typeof s.restricted === "boolean", "true or false");
  check("llm", s.llm === undefined || typeof s.llm === "boolean", "true or false");
  check("keep_disk", s.keep_disk === undefined || typeof s.keep_disk === "boolean", "true or false");
  check("restricted", !(s.restricted === true && s.internet === true), "false if internet is true");
  check("env", isEnv(s.env), "an object of strings");
  if (wrong.length > 0) throw new Failure("invalid", `the settings are not valid: ${wrong.join("; ")}`);
  return s as Settings;
}

// Times are the settings that a renewal may change.
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
