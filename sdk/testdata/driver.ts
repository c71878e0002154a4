// Does what the conformance suite asks for, line by line, with the TypeScript library.
import { Client, SandboxError, webhook, type Command, type Result, type Sandbox, type Session } from "@sandbox-lease/sdk";

declare const process: { stdin: AsyncIterable<Uint8Array>; env: Record<string, string> };

const client = new Client({ waitMin: 0.05, attempts: 8 });
const game = new Client({
  token: process.env["SANDBOX_TEST_PLAYER_TOKEN"]!,
  webhookSecret: process.env["SANDBOX_WEBHOOK_SECRET"]!,
  waitMin: 0.05,
  attempts: 8,
});
const sandboxes = new Map<string, Sandbox>();
const sessions = new Map<string, Session>();

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Args = any;

const say = (message: object) => console.log(JSON.stringify(message));
const text = (data: Uint8Array) => btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join(""));
const bytes = (value: string) => Uint8Array.from(atob(value), (c) => c.charCodeAt(0));
const data = (value?: string) => (value === undefined ? undefined : bytes(value));
const of = (a: Args) => sandboxes.get(a.lease)!;

function result(r: Result) {
  return { exit_code: r.exitCode, stdout: r.stdout, stderr: r.stderr, timed_out: r.timedOut, truncated: r.truncated };
}

async function run(target: Sandbox | Session, a: Args) {
  const stop = new AbortController();
  const got = (stream: string) => (line: string) => {
    say({ line, stream });
    if (line === a.abort_at_line) stop.abort(new Error("stopped"));
    if (line === a.fail_at_line) throw new Error("the callback failed");
  };
  const { id, env, cwd, timeout, verifier, output_limit, stdin } = a;
  const options = {
    ...(id && { id }),
    ...(env && { env }),
    ...(cwd && { cwd }),
    ...(timeout && { timeout }),
    ...(verifier && { verifier }),
    ...(output_limit && { outputLimit: output_limit }),
    ...(stdin !== undefined && { stdin: bytes(stdin) }),
  };
  const { signal } = stop;
  return result(await target.run(a.command, { ...options, signal, onStdout: got("stdout"), onStderr: got("stderr") }));
}

async function all(pieces: AsyncIterable<Uint8Array>) {
  const list: number[] = [];
  for await (const piece of pieces) list.push(...piece);
  return text(Uint8Array.from(list));
}

async function output(command: Command) {
  const streams = { stdout: [] as number[], stderr: [] as number[] };
  for await (const piece of command) streams[piece.stream].push(...piece.data);
  const end = await command.wait();
  const [stdout, stderr] = [streams.stdout, streams.stderr].map((list) => text(Uint8Array.from(list)));
  return { stdout, stderr, exit_code: end.exit_code };
}

async function runOnce(a: Args) {
  const { env, timeout, collect, network } = a;
  const r = await client.run(a.environment, a.command, {
    ...(env && { env }),
    ...(timeout && { timeout }),
    ...(collect && { collect }),
    ...(network && { network }),
    ...(a.files && { files: bytes(a.files) }),
    ...(a.stdin && { stdin: bytes(a.stdin) }),
    onStdout: (line) => say({ line, stream: "stdout" }),
  });
  return { ...result(r), files: text(r.files), missing: r.missing, status: r.lease.status };
}

async function condition(sender: Client, a: Args) {
  const { agent_did, generation, reason, id } = a;
  return sender.sendCondition(a.type, a.environment, {
    ...(agent_did && { agentDid: agent_did }),
    ...(generation && { generation }),
    ...(reason && { reason }),
    ...(id && { id }),
  });
}

const operations: Record<string, (a: Args) => unknown> = {
  lease: async (a) => {
    const s = await client.lease(a.agent, { environment: a.environment, ...(a.ttl && { ttl: a.ttl }) });
    sandboxes.set(s.id, s);
    return s.lease;
  },
  run: (a) => run(of(a), a),
  start: async (a) => (await of(a).start(a.command, a.id ? { id: a.id } : {})).id,
  output: (a) => output(of(a).command(a.id)),
  first_output: async (a) => {
    for await (const piece of of(a).command(a.id)) return piece.text;
  },
  read_output: (a) => all(of(a).command(a.id).read(a.stream, { offset: a.offset ?? 0 })),
  cancel: async (a) => (await of(a).command(a.id).cancel()).state,
  write_file: (a) => of(a).writeFile(a.path, bytes(a.content), a.mode ? { mode: a.mode } : {}),
  read_file: async (a) => text(await of(a).readFile(a.path)),
  list_files: async (a) => {
    const names: string[] = [];
    for await (const file of of(a).listFiles(a.path)) names.push(file.name);
    return names;
  },
  stat_file: (a) => of(a).statFile(a.path),
  remove_file: (a) => of(a).removeFile(a.path, { recursive: a.recursive ?? false }),
  write_tar: (a) => of(a).writeTar(a.path, bytes(a.content)),
  read_tar: async (a) => text(await (await of(a).readTar(a.path)).bytes()),
  start_process: (a) => of(a).startProcess(a.name, a.command, { restart: a.restart ?? false }),
  wait_process: ({ name, log, port, exit, timeout, ...a }) =>
    of(a).waitProcess(name, { ...(log && { log }), ...(port && { port }), ...(exit && { exit }), ...(timeout && { timeout }) }),
  process: (a) => of(a).process(a.name),
  processes: (a) => of(a).processes(),
  kill_process: (a) => of(a).killProcess(a.name),
  read_process: (a) => all(of(a).readProcess(a.name, { follow: a.follow ?? false })),
  session: async (a) => {
    const session = await of(a).session({ id: a.id, ...(a.env && { env: a.env }) });
    sessions.set(a.id, session);
    return session.session;
  },
  run_in_session: (a) => run(sessions.get(a.session)!, a),
  close_session: (a) => sessions.get(a.session)!.close(),
  session_events: async (a) => {
    const events: [string, string][] = [];
    for await (const e of sessions.get(a.session)!.events()) events.push([e.type, e.data]);
    return events;
  },
  run_once: runOnce,
  condition: (a) => condition(game, a),
  bearer_condition: (a) => condition(client, a),
  sign: (a) => webhook.sign(a.secret, a.id, bytes(a.body), a.at),
  verify: (a) => webhook.verify(a.secrets, a.headers, bytes(a.body), a.now),
  events: async (a) => {
    const types: string[] = [];
    for await (const e of of(a).events()) {
      types.push(e.type);
      if (types.length === a.count) break;
    }
    return types;
  },
  ask_agent: async (a) => {
    const body = data(a.body);
    const answer = await of(a).askAgent(a.agent, a.path ?? "", { method: a.method ?? "GET", ...(body && { body }) });
    return { status: answer.status, body: text(await answer.bytes()) };
  },
  release: (a) => of(a).release(),
  renew: (a) => of(a).renew(a.settings),
  sleep: (a) => of(a).sleep(),
  wake: (a) => of(a).wake(),
  refresh: (a) => of(a).refresh(),
  usage: (a) => of(a).usage(),
  health: (a) => of(a).health(),
  probe: async () => [await client.livez(), await client.readyz(), (await client.metrics()).includes("sandbox_")],
  call: (a) => {
    const name = a.method.replace(/_[a-z]/g, (match: string) => match.slice(1).toUpperCase()) as keyof Client;
    const method = client[name] as unknown as (...args: unknown[]) => Promise<unknown>;
    return method.call(client, ...(a.args ?? []), ...(a.query ? [a.query] : []));
  },
  methods: () => {
    const names: string[] = [];
    for (let at: object = client; at !== Object.prototype; at = Object.getPrototypeOf(at)) names.push(...Object.getOwnPropertyNames(at));
    return names;
  },
};

let rest = "";
const decoder = new TextDecoder();
for await (const piece of process.stdin) {
  const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
  rest = lines.pop()!;
  for (const line of lines) {
    const request = JSON.parse(line);
    try {
      say({ ok: (await operations[request.op]!(request)) ?? null });
    } catch (e) {
      if (!(e instanceof SandboxError)) {
        say({ error: { code: "", message: String(e) } });
        continue;
      }
      const fields = e.fields.map((field) => field.name);
      const { code, reason, retryable, message } = e;
      say({ error: { code, reason, fields, request_id: Boolean(e.requestId), retryable, message } });
    }
  }
}
