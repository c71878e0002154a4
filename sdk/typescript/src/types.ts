// Generated from the OpenAPI document by "go test ./sdk -run DocumentSays -update". Do not edit.

export interface AccountLine {
  /** How much the plan includes in a month. */
  allotment: number;
  /** An exact amount in US dollars, with at most nine decimals. */
  gross_usd: string;
  /** Amount that the allotment subtracts. */
  included_usd: string;
  resource: "memory" | "cpu" | "disk" | "asleep";
  unit: "GiB-hours" | "vCPU-minutes" | "GB-hours" | "hours";
  used: number;
}

export interface AccountMonth {
  backend: string;
  /** Sum of usage periods at list price. */
  gross_usd: string;
  /** Usage that the account's plan includes; it is subtracted. */
  included_usd: string;
  instance: string;
  lines: AccountLine[];
  month: string;
  /** gross_usd - included_usd + plan_fee_usd */
  net_usd: string;
  /** The account's plan fee. */
  plan_fee_usd: string;
  /** Name of the price book whose plan the account was on. */
  price_book: string;
  shadow: Statement;
  /** Source of its prices. */
  source: string;
  /** Date of its source. */
  as_of?: string;
}

export interface Acquire {
  agent_did: string;
  environment_id: string;
  /** Default: the caller's token. */
  owner?: string;
  settings?: LeaseSettings;
}

export interface AcquireBatch {
  /** One item for each lease. Two items must not name the same lease. */
  items: BatchItem[];
  /** Lease every item or none: if one fails, the leases that the batch began are released. */
  all_or_none?: boolean;
  /** Default for items that name none. */
  environment_id?: string;
  /** Default for items that name none. Default: the caller's token. */
  owner?: string;
  /** Defaults for the items. Each setting of an item overrides its default. */
  settings?: LeaseSettings;
}

export interface Acquired {
  is_new: boolean;
  lease: Lease;
}

export interface AcquiredBatch {
  /** One result per item, in the order of the items. */
  results: AcquiredItem[];
}

export interface AcquiredItem {
  /** Whether this batch created the lease. */
  is_new: boolean;
  /** Why the item failed. */
  error?: Problem;
  /** Absent if the item failed. */
  lease?: Lease;
}

export interface AdoptReport {
  dry_run: boolean;
  ledger_id: string;
  sandboxes: Adoption[];
}

export interface AdoptRequest {
  /** Report only. */
  dry_run?: boolean;
  /** End the adopted leases at once. */
  end?: boolean;
  environment_id?: string;
  /** The lost ledger that created the sandboxes. Default: this ledger. */
  ledger_id?: string;
}

export interface Adoption {
  adopted: boolean;
  backend: string;
  environment_id: string;
  generation: number;
  instance: string;
  sandbox_id: string;
  state: string;
  created_at?: string;
  deadline?: string;
  lease_id?: string;
  why?: string;
}

export interface Agent {
  /** The agent that holds the lease. */
  agent_did: string;
  environment_id: string;
  generation: number;
  id: string;
  lease_id: string;
  name: string;
  /** Requests to this path, and below it, are passed on to the agent. */
  path: string;
  port: number;
  state: "starting" | "running" | "asleep" | "ended";
  description?: string;
  error?: string;
  started_at?: string;
}

export interface AgentPage {
  agents: Agent[];
  next_after?: string;
}

export interface Allotment {
  cpu_seconds: number;
  disk_gb_seconds: number;
  memory_gib_seconds: number;
}

export interface Archive {
  /** SHA-256 of the file, as 64 lower-case hexadecimal digits. */
  sha256: string;
  /** Directory in the sandbox that it is unpacked into: /workspace or a path below. Files that are there are replaced. */
  target: string;
  /** URL with https, such as that of an object in a bucket, or with http. Its host must be allowed by the service (--workspace-allow, without TLS as http://host). The query of a presigned URL is stored and shown with the environment. */
  url: string;
  /** Header of the credential. Default Authorization. */
  credential_header?: string;
  /** Name of the secret that is sent as the value of a header, such as Bearer and a token. No sandbox gets this secret. Default: none. */
  credential_secret?: string;
}

export interface AuditCheck {
  object: string;
  rule: string;
  title: string;
  verdict: "pass" | "finding" | "inapplicable";
  detail?: string;
  environment_id?: string;
  lease_id?: string;
  sandbox_id?: string;
}

export interface AuditReport {
  instances: InstanceAudit[];
  ledger_id: string;
}

export interface AuditRequest {
  environment_id?: string;
}

export interface BatchItem {
  agent_did: string;
  environment_id?: string;
  owner?: string;
  settings?: LeaseSettings;
}

export interface Budget {
  /** US dollars that leases may cost in a calendar month (UTC), at list price. An acquire is refused if it leaves no room for an hour of the lease, and leases end when it is spent. Docker costs nothing unless a price book is configured. */
  monthly_usd: string;
}

export interface BudgetUse {
  month: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  monthly_usd: string;
  /** What live leases are likely to cost in the next hour, and the most that running model calls can cost. */
  reserved_usd: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  spent_usd: string;
  /** Part of spent_usd for model calls. */
  llm_usd?: string;
}

export interface Ceiling {
  /** Largest cpu_millis. Default: 2000, on Cloudflare that of basic. */
  cpu_millis?: number;
  /** Largest disk_mb. Default: 10240, on Cloudflare that of basic. */
  disk_mb?: number;
  /** Largest number of environments that match the token's patterns. Default: no limit. */
  environments?: number;
  /** Largest number of leases that an environment may have at once, and of sandboxes in its warm pool. Default: no limit. */
  leases?: number;
  /** Largest memory_mb. Default: 4096, on Cloudflare that of basic. */
  memory_mb?: number;
  /** Widest network mode. Default restricted. */
  network?: "none" | "restricted" | "full";
  /** Largest open_files. Default 16384. */
  open_files?: number;
  /** Largest pids_limit. Default: 256, on Cloudflare that of basic. */
  pids_limit?: number;
  /** Sandboxes may run as root. Default false. */
  root?: boolean;
  /** Largest run_mb. Default 16. */
  run_mb?: number;
  /** Container runtimes that environments may name. Default: none, so that only the engine's default runtime is used. */
  runtimes?: string[];
  /** Environments may set their own seccomp profile. Default false. */
  seccomp?: boolean;
  /** Largest state.size_limit_mb. Default 256. */
  state_mb?: number;
  /** Largest tmp_mb. Default 512. */
  tmp_mb?: number;
  /** Environments may mount host directories writable, if the service allows the directory. Default false. */
  writable_mounts?: boolean;
}

export interface Companion {
  /** Image reference on the engine, pinned by digest or id if possible. */
  image: string;
  /** The program and its arguments, run without a shell. Default: the entrypoint and command of the image. */
  command?: string[];
  /** Environment variables. Do not put secrets here. */
  env?: Record<string, string>;
  /** When the companion is ready, and healthy later. It must have command or port. Default: ready as soon as its program has started, and not checked later. */
  health_check?: CompanionHealthCheck;
  /** Limits. They add to the billed size of the sandbox. Default: 512 MiB, 0.5 cores, 256 processes, 1024 MB of disk. */
  resources?: Resources;
  /** Whether it starts again: on_failure does so after its program ended with an exit code other than 0, and when it becomes unhealthy, at most 5 times. Default never. */
  restart?: "never" | "on_failure";
  /** Names of the environment's secrets that the companion gets as files in /run/secrets. Default: none. */
  secrets?: string[];
}

export interface CompanionHealthCheck {
  /** A program in the companion that ends with exit code 0 once it is healthy, with its arguments, run without a shell. */
  command?: string[];
  /** Pause between two checks, 100ms to 10m. A companion that is ready is checked at most every 10s. Default 1s. */
  interval?: string;
  /** A path that must answer GET on the port with a status from 200 to 399. Default: a connection is enough. */
  path?: string;
  /** A TCP port on 127.0.0.1 that accepts connections once the companion is healthy. */
  port?: number;
  /** The companion failed if it is not healthy this long after its start. 1s to 10m. Default 1m. */
  start_period?: string;
  /** Limit of one check, 100ms to 10m. Once the companion is ready, at most 30s. Default 5s. */
  timeout?: string;
}

export interface CompanionStatus {
  image: string;
  name: string;
  restarts: number;
  /** When it entered its state. */
  since: string;
  state: "starting" | "ready" | "unhealthy" | "failed";
  message?: string;
}

export interface Condition {
  data: ConditionData;
  timestamp: string;
  type: string;
}

export interface ConditionData {
  environment_id: string;
  agent_did?: string;
  generation?: number;
  reason?: string;
}

export interface Confinement {
  /** Permit user or group 0 in user. Even root has no capabilities here. Default false. */
  allow_root?: boolean;
  /** billed (default): disk_mb is billed; if /workspace and /data together exceed it, the sandbox's programs are killed. enforced: in addition, a quota limits each of the two to disk_mb; an engine without quotas refuses the environment. */
  disk_limit?: "billed" | "enforced";
  /** Largest number of open files of one process, 64 to 1048576. Default 16384. */
  open_files?: number;
  /** Size of /run in MiB, 1 to 1024, at most a sixteenth of the memory. Its content counts as memory. Default 16, or a sixteenth of the memory if that is less. */
  run_mb?: number;
  /** Container runtime, such as runsc. The engine must have it. Default: the engine's default runtime. */
  runtime?: string;
  /** Seccomp profile as JSON text. It replaces the built-in profile and must deny by default. */
  seccomp_profile?: string;
  /** Size of /tmp in MiB, 1 to 32768, at most half of the memory. Its content counts as memory. Default 512, or half of the memory if that is less. */
  tmp_mb?: number;
  /** Numeric user and group that the code of every sandbox runs as, as uid:gid. Sandboxes with the same user share the kernel's limits for it. Default: a separate user for each sandbox. */
  user?: string;
}

export interface Copy {
  /** Absolute path on the service's machine. */
  source: string;
  /** Path of the file, or of the directory, under /workspace or /data. */
  target: string;
}

export interface CostReport {
  /** What each account owes for each whole calendar month that the report touches, whatever the query selects. Empty for a token that is limited to environments. */
  accounts: AccountMonth[];
  as_of: string;
  price_books: Record<string, PriceBook>;
  rows: CostRow[];
  total: CostRow;
}

export interface CostRow {
  asleep_seconds: number;
  awake_seconds: number;
  cpu_seconds: number;
  generations: number;
  /** Cost of sandboxes at list price. */
  gross_usd: string;
  /** What the same usage of sandboxes would cost on Cloudflare at list price. */
  shadow_gross_usd: string;
  /** gross_usd + llm.cost_usd */
  total_usd: string;
  agent_did?: string;
  day?: string;
  environment_id?: string;
  /** Value of the label that the report groups by. */
  label?: string;
  lease_id?: string;
  /** What model calls used, at the list prices of their routes. */
  llm?: LLMUse;
  month?: string;
}

export interface CreateSession {
  /** In /workspace or /data. Default /workspace. */
  cwd?: string;
  /** Initial variables. The ledger stores their values encrypted. No response contains them. */
  env?: Record<string, string>;
  /** Id for idempotent retries: a repeat of the request returns the same session. Never reusable. Default: generated. */
  id?: string;
  /** "uid" or "uid:gid" in numbers; root needs the environment's confinement.allow_root. Default: the sandbox's user. */
  user?: string;
}

export interface CreateToken {
  /** Name of the token's holder: 1 to 63 letters, digits, '.', '_' and '-'. */
  name: string;
  /** read, lease, conditions, admin. lease includes read; admin includes all. */
  scopes: string[];
  /** Raises the safe default limits of a token that is limited to environments. */
  ceiling?: Ceiling;
  /** Patterns, such as catan-*, of the environments that the token may touch. An empty list is an error. Default: all environments, and what belongs to none. */
  environments?: string[];
  /** When the token expires. Default: never. */
  expires_at?: string;
}

export interface CreatedToken {
  created_at: string;
  id: string;
  name: string;
  scopes: string[];
  token: string;
  ceiling?: Ceiling;
  created_by?: string;
  environments?: string[];
  expires_at?: string;
  last_used_at?: string;
  revoked_at?: string;
  revoked_by?: string;
}

export interface DeliveryPage {
  deliveries: StoredDelivery[];
  next_before?: string;
}

export interface DiskUsage {
  bytes: number;
  complete: boolean;
  files: number;
}

export interface DriftFinding {
  first_seen_at: string;
  id: number;
  instance: string;
  kind: "vanished" | "stopped" | "out_of_memory" | "changed" | "orphan" | "leftover" | "usage";
  last_seen_at: string;
  sandbox_id: string;
  environment_id?: string;
  expected?: string;
  field?: string;
  lease_id?: string;
  observed?: string;
  resolution?: string;
  resolved_at?: string;
}

export interface DriftPage {
  findings: DriftFinding[];
}

export interface Egress {
  /** The allowed hosts; all others are refused. */
  allow: EgressRule[];
  /** Certificates of authorities, in PEM, that hosts with a credential may have theirs from, beside the public ones, such as that of a self-hosted Git server. At most 64 KiB. Docker only. */
  authorities?: string;
  /** Credentials that the gateway adds to requests to allowed hosts by TLS, by host, such as github.com. No sandbox gets them. Docker only. */
  credentials?: Record<string, EgressCredential>;
  /** Private ranges that an allowed host may be in, such as that of a self-hosted model. Other private addresses are refused. */
  private_cidrs?: string[];
}

export interface EgressCredential {
  /** Name of the secret. No sandbox gets this secret. */
  secret: string;
  /** Header that gets the credential. Default: Authorization. */
  header?: string;
  /** bearer: the word Bearer and the secret. basic: username and the secret as the password, as git needs it. raw: the secret alone. Default: bearer in Authorization, raw in another header. */
  scheme?: "bearer" | "basic" | "raw";
  /** User of the scheme basic, such as x-access-token for a token of GitHub. */
  username?: string;
}

export interface EgressRule {
  /** A name such as api.github.com, or *.example.com for all subdomains of example.com, without example.com itself. */
  host: string;
  /** Default: 443 and 80. */
  ports?: number[];
}

export interface Endpoint {
  /** TCP port on the sandbox's 127.0.0.1 where the process serves HTTP, 1 to 65535. */
  port: number;
  /** What the agent does, at most 200 bytes. Default: empty. */
  description?: string;
}

export interface Environment {
  backend: "docker" | "cloudflare";
  created_at: string;
  epoch: number;
  id: string;
  /** Image reference, pinned by digest or id if possible. */
  image: string;
  /** The ledger's latest event when this was read: follow events after it. */
  last_event_id: number;
  /** The environment's leases whose sandboxes are not deleted, by sandbox_state. */
  leases: LeaseCounts;
  network: "none" | "restricted" | "full";
  /** Number of open drift findings. */
  open_drift: number;
  owner: string;
  status: "open" | "ended" | "deleting" | "destroyed";
  /** Sets the default expiry conditions. */
  type: "rpg" | "catan" | "coding" | "custom";
  updated_at: string;
  /** Tar archives, plain or compressed with gzip or zstd, that each sandbox starts with. The service fetches them; credentials stay outside. At most 16. Docker only. Default: none. */
  archives?: Archive[];
  /** Refuses acquires that could exceed a monthly amount. Ends the environment's leases once it is spent. Default: no limit. */
  budget?: Budget;
  budget_use?: BudgetUse;
  /** Tools that the image must have, by name, such as git or python. Each sandbox is checked before its lease is ready; a lease whose image lacks one fails. Default: none. */
  builtin_tools?: string[];
  /** Time limit of commands that set none, 1s to 24h. Default 2m. */
  command_timeout?: string;
  /** Containers that live with each sandbox and share its network, by name, at most 4. They are ready before its lease is. A change applies to later generations. Docker only. */
  companions?: Record<string, Companion>;
  /** Isolation settings beyond those that every sandbox has. */
  confinement?: Confinement;
  /** Host files and directories that are copied into each sandbox when it is created. */
  copies?: Copy[];
  drift?: DriftFinding[];
  /** What sandboxes may reach in a restricted network. Default: github.com, api.github.com, raw.githubusercontent.com and cdn.jsdelivr.net. */
  egress?: Egress;
  /** All conditions that ended the environment, in their order. A lease that names one of them is not granted. */
  end_conditions?: string[];
  ended_at?: string;
  ended_by?: string;
  /** Environment variables of every sandbox. Do not put secrets here. */
  env?: Record<string, string>;
  /** Environment variables that no sandbox and no command may have, in addition to those that are always blocked. */
  env_blocked?: string[];
  /** Environment variables of the service that are passed to sandboxes, read when a sandbox is created. * stands for all that the operator allows by name and that are set. env overrides them. The engine shows their values: use secrets for secrets. */
  env_passthrough?: string[];
  /** Conditions that end leases of this environment. At most 32. */
  expiry_conditions?: string[];
  /** missing: the engine pulls images that it does not have, those of companions too. Docker only. Default never. */
  image_pull?: "never" | "missing";
  /** Initial text files, by path relative to /data, for sandboxes that start without a snapshot. */
  initial_state?: Record<string, string>;
  instance?: string;
  /** Keeps the whole disk of a sandbox while it sleeps. On Cloudflare it needs the scheduling policy durable_object, and the default keeps only /data; a change applies to later generations. On Docker a sleeping sandbox always keeps its disk. Default false. */
  keep_disk?: boolean;
  /** Labels of the environment and of its leases: filters of lists, events and costs. At most 32, without commas. */
  labels?: Record<string, string>;
  /** Routes to models by name. A sandbox calls them without a key; the environment's gateway adds it and records tokens and cost. */
  llm?: Record<string, LLMRoute>;
  /** A lease ends this long after it began, even if it is renewed. Default 240h. */
  max_lifetime?: string;
  /** Host directories mounted into sandboxes, read-only unless writable. */
  mounts?: Mount[];
  pool?: PoolStatus;
  /** How long a sandbox that failed after it was ready is kept, stopped, for inspection; 0s removes it at once. At most 720h, and never longer than the service's cleanup TTL. Default 1h. */
  post_mortem?: string;
  /** Commands that run once in each sandbox, one after another, before its lease is ready. If one fails, the lease fails. */
  post_start?: PostStart[];
  /** Processes that start in every sandbox as soon as it is ready, at most 16. A change applies to later generations. */
  processes?: ProcessSpec[];
  /** Size of a sandbox. Default 512 MiB, 500 thousandths of a core, 256 processes and 10240 MB, on Cloudflare those of basic. An environment that has the former default of 4096 MiB or 2000 thousandths keeps it where a change leaves it out. */
  resources?: Resources;
  retired_at?: string;
  /** Names of the secrets that every sandbox gets as files in /run/secrets. A new name requires a value in secret_values. A secret that is left out is deleted. */
  secrets?: string[];
  /** Prompts by skill, written to /data/skills/<skill>/prompt.md at the start of each generation. */
  skills?: Record<string, string>;
  /** An idle sandbox sleeps after this time; 0s disables sleep. Default 5m. */
  sleep_after?: string;
  sleep_mode?: "pause" | "stop";
  /** Keeps /data from one generation of a lease to the next. Default: /data is deleted with its sandbox. */
  state?: SnapshotSpec;
  /** A lease ends this long after its last activity. Default 24h. */
  ttl?: string;
  /** Keeps sandboxes ready for the next acquires. Default: none. */
  warm_pool?: WarmPool;
  /** Git repository that each sandbox starts with. The service fetches it; its credential stays outside. Docker only. Default: none. */
  workspace?: Workspace;
}

export interface EnvironmentPage {
  environments: Environment[];
}

export interface Event {
  at: string;
  environment_id: string;
  id: number;
  type: string;
  actor?: string;
  address?: string;
  data?: unknown;
  generation?: number;
  lease_id?: string;
  sandbox_id?: string;
  sequence?: number;
}

export interface EventPage {
  events: Event[];
  next_after_id?: number;
}

export interface Exec {
  command: string[];
  cwd: string;
  generation: number;
  id: string;
  last_event_sequence: number;
  lease_id: string;
  sandbox_id: string;
  /** When the service accepted it. */
  started_at: string;
  /** finished: it ended on its own or timed out. failed: it could not run, or its result is unknown. cancelled: a request, the end of its lease or its caller's disconnect ended it. */
  state: "running" | "finished" | "failed" | "cancelled";
  /** Bytes written, once it has ended. */
  stderr_bytes: number;
  /** Bytes written, once it has ended. */
  stdout_bytes: number;
  /** Run time after which it is killed. */
  timeout: string;
  /** verifier: the command runs as the sandbox's verifier. */
  as?: "verifier";
  /** It runs without its caller. */
  detached?: boolean;
  /** When its output was deleted to make room for newer output. */
  dropped_at?: string;
  env_names?: string[];
  /** Why it failed or was cancelled, or why its output is incomplete. */
  error?: string;
  /** The program's exit code, once the command has finished. A command that runs, failed or was cancelled has none. */
  exit_code?: number;
  /** When it ended, also where the service learned of that later. */
  finished_at?: string;
  /** It was killed because the sandbox reached its memory limit. */
  oom_killed?: boolean;
  /** The session that it runs in. */
  session_id?: string;
  /** It ran longer than its timeout and was killed; the exit code is then 124. */
  timed_out?: boolean;
  /** Not all of its output is stored. */
  truncated?: boolean;
  user?: string;
}

export interface ExecInput {
  data: string;
  encoding?: "base64";
}

export interface ExecOutput {
  data?: string;
  encoding?: "base64";
  error?: Problem;
  result?: ExecResult;
  stream?: "stdout" | "stderr";
}

export interface ExecPage {
  execs: Exec[];
  next_before?: string;
}

export interface ExecRequest {
  /** verifier: run as a second user of the sandbox, while all other processes of the sandbox are frozen. An error if one of them ran anyway. For test verdicts. Other commands wait, and get 409 verifier_runs at their timeout. */
  as?: "verifier";
  /** Program and arguments, without a shell. */
  command?: string[];
  /** In /workspace or /data. Default /workspace. */
  cwd?: string;
  /** Respond with 202 and the started command. It keeps running without its caller, and takes no stdin. */
  detach?: boolean;
  env?: Record<string, string>;
  /** Id for idempotent retries: a repeat of the request returns the same command. Input and values of variables are not compared. Never reusable. Default: generated. */
  id?: string;
  /** Bytes to keep of each stream of collected output. Default 1 MiB. */
  output_limit?: number;
  /** A line for the image's /bin/sh instead of command, only in sessions. The session keeps the variables that it exports and its final directory. */
  shell?: string;
  /** Author of a session's command. Default agent. */
  source?: "user" | "agent" | "system";
  stdin?: string;
  stdin_encoding?: "base64";
  /** At most 24h; the exit code is then 124. Default: the environment's command_timeout. */
  timeout?: string;
  /** "uid" or "uid:gid" in numbers; root needs the environment's confinement.allow_root. Default: the sandbox's user. */
  user?: string;
}

export interface ExecResult {
  /** A duration in Go syntax. */
  duration: string;
  exit_code: number;
  stderr_bytes: number;
  /** Bytes written. */
  stdout_bytes: number;
  /** The id of the command. */
  exec_id?: string;
  oom_killed?: boolean;
  stderr?: string;
  stderr_encoding?: "base64";
  stdout?: string;
  stdout_encoding?: "base64";
  timed_out?: boolean;
  truncated?: boolean;
}

export interface Field {
  name: string;
  problem: string;
}

export interface FileInfo {
  /** Permissions, octal. */
  mode: string;
  modified_at: string;
  /** The last element of the path. */
  name: string;
  type: "file" | "directory" | "symlink" | "other";
  name_encoding?: "base64";
  /** In bytes, for regular files only. */
  size?: number;
  /** Target of a symlink. */
  target?: string;
  target_encoding?: "base64";
}

export interface FilePage {
  files: FileInfo[];
}

export interface GitSource {
  /** URL of the repository, with https or ssh; ssh also as git@host:path. Its host must be allowed by the service (--workspace-allow). With http, for a host that is allowed without TLS (--workspace-allow http://host). Or file:// and the absolute path of a repository on the service's machine, whose directory must be allowed (--mount-allow). Commits are read from it, and nothing is written to it. */
  url: string;
  /** Name of the secret that is the password or token, or the private key for ssh. No sandbox gets this secret. Required with ssh, not with file. Default: none. */
  credential_secret?: string;
  /** Number of commits of history; 0 fetches all. Default 0. */
  depth?: number;
  /** Lines with the keys that an ssh server may have, as in ~/.ssh/known_hosts. No other key is trusted. Default: those of the service (--workspace-known-hosts). */
  known_hosts?: string;
  /** Branch, tag, full name below refs/, or commit of 40 digits. Default: the HEAD of the repository. */
  ref?: string;
  /** Fetch submodules too, from hosts that the service allows. They get the credential only from the repository's own host. Default false. */
  submodules?: boolean;
  /** User that goes with the credential. Default x-access-token. Not with ssh, whose URL names the user. */
  username?: string;
}

export interface InstanceAudit {
  backend: string;
  checks: AuditCheck[];
  error?: string;
  instance?: string;
}

export interface InstanceSweep {
  backend: string;
  findings: SweepFinding[];
  instance: string;
  error?: string;
}

export interface LLMCall {
  agent_did: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  cost_usd: string;
  environment_id: string;
  generation: number;
  id: string;
  lease_id: string;
  model: string;
  outcome: "running" | "completed" | "rejected" | "unsent" | "interrupted";
  route: string;
  sandbox_id: string;
  started_at: string;
  tokens: LLMTokens;
  ended_at?: string;
  /** What the agent works for, as the agent itself says with X-Sandbox-Session. */
  session?: string;
  /** HTTP status of the upstream. */
  status?: number;
  /** The upstream did not report what the call used: cost_usd is the most that it can have cost. */
  unknown?: boolean;
}

export interface LLMCallPage {
  calls: LLMCall[];
  next_before?: string;
}

export interface LLMLimits {
  /** Number of calls. */
  requests?: number;
  /** Input and output tokens together. */
  tokens?: number;
  /** US dollars at list price. */
  usd?: string;
}

export interface LLMModel {
  /** US dollars for a million input tokens. */
  input_usd_per_million: string;
  /** US dollars for a million output tokens, those of reasoning included. */
  output_usd_per_million: string;
  /** US dollars for a million input tokens that the upstream puts into its cache. Default: twice input_usd_per_million for anthropic, the most that it charges; otherwise input_usd_per_million. */
  cache_write_usd_per_million?: string;
  /** US dollars for a million input tokens from the upstream's cache. Default: input_usd_per_million. */
  cached_input_usd_per_million?: string;
  /** The most input tokens of a call. Default 200000. */
  max_input_tokens?: number;
  /** The most output tokens of a call. A call that asks for more is refused. Default 32768. */
  max_output_tokens?: number;
}

export interface LLMRoute {
  /** Protocol of the upstream. */
  api: "openai" | "anthropic" | "openrouter";
  /** Name of the secret that is the upstream's key. No sandbox gets this secret. */
  credential: string;
  /** Prices and bounds of the models that may be called, by the name that requests use. Other models are refused. */
  models: Record<string, LLMModel>;
  /** Limits of each lease, from its beginning. */
  lease_limits?: LLMLimits;
  /** Limits of the environment in a calendar month (UTC). */
  monthly_limits?: LLMLimits;
  /** Where the prices are from, such as the address of a price list. */
  price_source?: string;
  /** Date of the prices, as 2026-11-24. */
  prices_as_of?: string;
  /** Base URL of the API, without /v1, such as that of a LiteLLM proxy. Default: https://api.openai.com, https://api.anthropic.com or https://openrouter.ai/api, by api. */
  upstream?: string;
}

export interface LLMTokens {
  /** Input tokens written to the upstream's cache. */
  cache_write: number;
  /** Input tokens read from the upstream's cache. */
  cached_input: number;
  /** Input tokens that were neither read from the upstream's cache nor written to it. */
  input: number;
  /** Output tokens, those of reasoning included. */
  output: number;
}

export interface LLMUse {
  /** Number of calls that have ended. */
  calls: number;
  /** Cost at the routes' list prices. */
  cost_usd: string;
  tokens: LLMTokens;
  /** Calls whose upstream did not report what they used. */
  unknown_calls: number;
  /** Part of cost_usd: the most that those calls can have cost. */
  unknown_usd: string;
}

export interface Lease {
  agent_did: string;
  backend: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  cost_usd: string;
  environment_id: string;
  expires_at: string;
  expiry_conditions: string[];
  generation: number;
  id: string;
  image: string;
  last_activity: string;
  /** The ledger's latest event when this was read: follow events after it. */
  last_event_id: number;
  last_sequence: number;
  leased_at: string;
  /** A duration in Go syntax. */
  max_lifetime: string;
  network: string;
  owner: string;
  phase: "pending" | "awake" | "asleep" | "gone";
  resources: Resources;
  sandbox_id: string;
  /** State of the sandbox. status is the status of the lease. */
  sandbox_state: "pending" | "ready" | "asleep" | "stopped" | "failed" | "deleting" | "deleted";
  /** A duration in Go syntax. */
  sleep_after: string;
  sleep_mode: string;
  status: "pending" | "active" | "expired" | "destroyed";
  /** A duration in Go syntax. */
  ttl: string;
  /** Directory in which commands start and the agent works: always /workspace. */
  workspace_path: string;
  attempts?: number;
  /** Companions of the sandbox, by name. */
  companions?: CompanionStatus[];
  /** The engine's id of the sandbox's container, while there is one that this reconciler has seen. Docker only. */
  container_id?: string;
  destroyed_at?: string;
  drift?: DriftFinding[];
  end_reason?: string;
  ended_at?: string;
  ended_by?: string;
  /** Why the sandbox failed or stopped on its own, as a code. */
  error_code?: string;
  /** Why the sandbox failed or stopped on its own, as text. */
  error_message?: string;
  instance?: string;
  /** When a failed sandbox is removed; until then it is kept, stopped, for a post-mortem. Releasing its generation removes it earlier. */
  kept_until?: string;
  /** Labels of the lease and of its environment. */
  labels?: Record<string, string>;
  last_error?: string;
  /** What model calls have used, beside cost_usd. */
  llm?: LLMUse;
  observed_at?: string;
  ready_at?: string;
  retired_at?: string;
  settings?: LeaseSettings;
  /** When the sandbox was last started or woken, while it is awake. */
  started_at?: string;
  state?: LeaseSnapshot;
  /** When sandbox_state last changed. */
  state_changed_at?: string;
  /** Why the sandbox is asleep or stopped: idle_ttl, request, warm_pool, last_save, outside or crashed. */
  stop_reason?: string;
}

export interface LeaseCounts {
  asleep: number;
  deleting: number;
  failed: number;
  pending: number;
  ready: number;
  stopped: number;
}

export interface LeaseHealth {
  backend_reachable: boolean;
  checked_at: string;
  generation: number;
  healthy: boolean;
  lease_id: string;
  phase: "pending" | "awake" | "asleep" | "gone";
  sandbox_id: string;
  status: "pending" | "active" | "expired" | "destroyed";
  problem?: string;
  state?: string;
}

export interface LeasePage {
  leases: Lease[];
  next_after?: string;
}

export interface LeaseSettings {
  /** Conditions that end this lease instead of those of the environment. At most 32. */
  expiry_conditions?: string[];
  /** Labels in addition to those of the environment, whose values they cannot change. At most 32, without commas. */
  labels?: Record<string, string>;
  /** Fixed when the lease begins. */
  max_lifetime?: string;
  /** A duration in Go syntax. */
  sleep_after?: string;
  /** A duration in Go syntax. */
  ttl?: string;
}

export interface LeaseSnapshot {
  key: string;
  role: "waiting" | "holder" | "copy" | "done" | "lost";
  error?: string;
  failing_since?: string;
  gives_up_at?: string;
  restored_from?: Snapshot;
  saved_at?: string;
  unsaved_since?: string;
}

export interface LeaseUsage {
  /** CPU time since the sandbox last started. */
  cpu_time: string;
  generation: number;
  lease_id: string;
  limits: Resources;
  memory_bytes: number;
  pids: number;
  sampled_at: string;
  sandbox_id: string;
  state: string;
  /** Mean CPU use since the last sample of the history, in percent of one core. Absent if that sample is more than three minutes old, or the sandbox has started since. */
  cpu_percent?: number;
  disk?: DiskUsage;
}

export interface LeaseUsageHistory {
  generation: number;
  lease_id: string;
  limits: Resources;
  samples: UsageSample[];
  sandbox_id: string;
}

export interface LedgerInfo {
  id: string;
  /** The latest event: follow events after it. */
  last_event_id: number;
  price_books: Record<string, PriceBook>;
  version: string;
  /** Costs before this moment are kept by UTC day. */
  detail_since?: string;
  /** Events up to this one are not all retained: a reader cannot continue from before it. */
  purged_event_id?: number;
}

export interface Mount {
  /** Absolute path on the service's machine. The engine must run on the same machine. */
  source: string;
  /** Absolute path in the sandbox. */
  target: string;
  writable?: boolean;
}

export interface PoolStatus {
  pending: number;
  ready: number;
  failures?: number;
  last_error?: string;
  retry_at?: string;
}

export interface PostStart {
  /** The program and its arguments, run without a shell. */
  command: string[];
  /** Environment variables of the command, in addition to those of the sandbox. Do not put secrets here. */
  env?: Record<string, string>;
  /** After this time the command, everything it started, and the lease end. Default 2m, at most 1h. */
  timeout?: string;
  /** Numeric uid or uid:gid. Root requires confinement.allow_root. Default: the sandbox's user. */
  user?: string;
}

export interface PriceBook {
  as_of: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  asleep_disk_gb_second_usd: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  asleep_memory_gib_second_usd: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  cpu_second_usd: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  disk_gb_second_usd: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  memory_gib_second_usd: string;
  name: string;
  /** An exact amount in US dollars, with at most nine decimals. */
  plan_month_usd: string;
  source: string;
  included?: Allotment;
}

export interface Problem {
  /** Kind of failure, for programs. */
  code: string;
  /** What was tried, on which object, why it failed, and what to do next. */
  detail: string;
  /** The HTTP status. */
  status: number;
  /** What the code means. */
  title: string;
  /** urn:sandbox-lease:problem: followed by the code. */
  type: string;
  /** The problems of the request by field. */
  fields?: Field[];
  /** Refines the code, for programs. */
  reason?: string;
  /** The id of the request in the server's log. */
  request_id?: string;
}

export interface Process {
  command: string[];
  cwd: string;
  generation: number;
  lease_id: string;
  name: string;
  restart: "no" | "always";
  sandbox_id: string;
  /** Number of starts. */
  starts: number;
  /** pending: it starts at next_start_at. */
  state: "pending" | "running" | "exited" | "failed" | "killed" | "stopped";
  /** The environment declares it. */
  declared?: boolean;
  endpoint?: Endpoint;
  env_names?: string[];
  /** Why it failed, or why it last ended. */
  error?: string;
  /** The exit code of the latest exit. Absent before that, after a kill, and where it is not known, as error says. */
  exit_code?: number;
  exited_at?: string;
  /** The earliest next start of a pending process. */
  next_start_at?: string;
  oom_killed?: boolean;
  /** Time of the latest start. */
  started_at?: string;
  user?: string;
}

export interface ProcessPage {
  processes: Process[];
}

export interface ProcessSpec {
  /** The program and its arguments, run without a shell. */
  command: string[];
  /** 1 to 63 characters of a-z, 0-9, '.', '_' and '-', starting with a letter or digit. */
  name: string;
  /** Working directory in /workspace or /data. Default /workspace. */
  cwd?: string;
  /** Where the process serves HTTP: it is then an agent, which GET /v1/agents lists. Default: none. */
  endpoint?: Endpoint;
  /** Environment variables in addition to those of the sandbox. The ledger stores them as long as the process may start: do not put secrets here. */
  env?: Record<string, string>;
  /** Whether it restarts after it exits on its own. Default no. A declared process always restarts after its sandbox was stopped. */
  restart?: "no" | "always";
  /** Numeric uid or uid:gid. Root requires confinement.allow_root. Default: the sandbox's user. */
  user?: string;
}

export interface ProcessWait {
  /** Wait until the process has exited and is not restarted. */
  exit?: boolean;
  /** Wait for a log line that matches this regular expression (RE2). Earlier lines count. */
  log?: string;
  /** Wait until this TCP port of the sandbox's 127.0.0.1 accepts connections, from any process. */
  port?: number;
  /** Default 1m, at most 1h. */
  timeout?: string;
}

export interface ProcessWaited {
  command: string[];
  cwd: string;
  generation: number;
  lease_id: string;
  name: string;
  restart: "no" | "always";
  sandbox_id: string;
  /** Number of starts. */
  starts: number;
  /** pending: it starts at next_start_at. */
  state: "pending" | "running" | "exited" | "failed" | "killed" | "stopped";
  /** The environment declares it. */
  declared?: boolean;
  endpoint?: Endpoint;
  env_names?: string[];
  /** Why it failed, or why it last ended. */
  error?: string;
  /** The exit code of the latest exit. Absent before that, after a kill, and where it is not known, as error says. */
  exit_code?: number;
  exited_at?: string;
  line?: string;
  /** The earliest next start of a pending process. */
  next_start_at?: string;
  offset?: number;
  oom_killed?: boolean;
  /** Time of the latest start. */
  started_at?: string;
  user?: string;
}

export interface PutEnvironment {
  /** Image reference, pinned by digest or id if possible. */
  image: string;
  /** Tar archives, plain or compressed with gzip or zstd, that each sandbox starts with. The service fetches them; credentials stay outside. At most 16. Docker only. Default: none. */
  archives?: Archive[];
  backend?: "docker" | "cloudflare";
  /** Refuses acquires that could exceed a monthly amount. Ends the environment's leases once it is spent. Default: no limit. */
  budget?: Budget;
  /** Tools that the image must have, by name, such as git or python. Each sandbox is checked before its lease is ready; a lease whose image lacks one fails. Default: none. */
  builtin_tools?: string[];
  /** Time limit of commands that set none, 1s to 24h. Default 2m. */
  command_timeout?: string;
  /** Containers that live with each sandbox and share its network, by name, at most 4. They are ready before its lease is. A change applies to later generations. Docker only. */
  companions?: Record<string, Companion>;
  /** Isolation settings beyond those that every sandbox has. */
  confinement?: Confinement;
  /** Host files and directories that are copied into each sandbox when it is created. */
  copies?: Copy[];
  create_only?: boolean;
  /** What sandboxes may reach in a restricted network. Default: github.com, api.github.com, raw.githubusercontent.com and cdn.jsdelivr.net. */
  egress?: Egress;
  /** Environment variables of every sandbox. Do not put secrets here. */
  env?: Record<string, string>;
  /** Environment variables that no sandbox and no command may have, in addition to those that are always blocked. */
  env_blocked?: string[];
  /** Environment variables of the service that are passed to sandboxes, read when a sandbox is created. * stands for all that the operator allows by name and that are set. env overrides them. The engine shows their values: use secrets for secrets. */
  env_passthrough?: string[];
  epoch?: number;
  /** Conditions that end leases of this environment. At most 32. */
  expiry_conditions?: string[];
  id?: string;
  /** missing: the engine pulls images that it does not have, those of companions too. Docker only. Default never. */
  image_pull?: "never" | "missing";
  /** Initial text files, by path relative to /data, for sandboxes that start without a snapshot. */
  initial_state?: Record<string, string>;
  /** Backend instance to deploy to. Another instance than before moves the environment; its leases must have ended. */
  instance?: string;
  /** Keeps the whole disk of a sandbox while it sleeps. On Cloudflare it needs the scheduling policy durable_object, and the default keeps only /data; a change applies to later generations. On Docker a sleeping sandbox always keeps its disk. Default false. */
  keep_disk?: boolean;
  /** Labels of the environment and of its leases: filters of lists, events and costs. At most 32, without commas. */
  labels?: Record<string, string>;
  /** Routes to models by name. A sandbox calls them without a key; the environment's gateway adds it and records tokens and cost. */
  llm?: Record<string, LLMRoute>;
  /** A lease ends this long after it began, even if it is renewed. Default 240h. */
  max_lifetime?: string;
  /** Host directories mounted into sandboxes, read-only unless writable. */
  mounts?: Mount[];
  network?: "none" | "restricted" | "full";
  /** Owner, who may change it. Default: the caller's token. */
  owner?: string;
  /** How long a sandbox that failed after it was ready is kept, stopped, for inspection; 0s removes it at once. At most 720h, and never longer than the service's cleanup TTL. Default 1h. */
  post_mortem?: string;
  /** Commands that run once in each sandbox, one after another, before its lease is ready. If one fails, the lease fails. */
  post_start?: PostStart[];
  /** Processes that start in every sandbox as soon as it is ready, at most 16. A change applies to later generations. */
  processes?: ProcessSpec[];
  /** Size of a sandbox. Default 512 MiB, 500 thousandths of a core, 256 processes and 10240 MB, on Cloudflare those of basic. An environment that has the former default of 4096 MiB or 2000 thousandths keeps it where a change leaves it out. */
  resources?: Resources;
  /** Values of new or changed secrets, by name. They are stored encrypted and never shown. */
  secret_values?: Record<string, string>;
  /** Names of the secrets that every sandbox gets as files in /run/secrets. A new name requires a value in secret_values. A secret that is left out is deleted. */
  secrets?: string[];
  /** Prompts by skill, written to /data/skills/<skill>/prompt.md at the start of each generation. */
  skills?: Record<string, string>;
  /** An idle sandbox sleeps after this time; 0s disables sleep. Default 5m. */
  sleep_after?: string;
  sleep_mode?: "pause" | "stop";
  /** Keeps /data from one generation of a lease to the next. Default: /data is deleted with its sandbox. */
  state?: SnapshotSpec;
  /** A lease ends this long after its last activity. Default 24h. */
  ttl?: string;
  /** Sets the default expiry conditions. */
  type?: "rpg" | "catan" | "coding" | "custom";
  /** Keeps sandboxes ready for the next acquires. Default: none. */
  warm_pool?: WarmPool;
  /** Git repository that each sandbox starts with. The service fetches it; its credential stays outside. Docker only. Default: none. */
  workspace?: Workspace;
}

export interface Receipt {
  duplicate: boolean;
  id: string;
  matched: number;
  status: "applied" | "stale" | "unmatched";
  /** Only if unmatched: the condition on which leases end here and whose name is close to this type, which is probably misspelled. */
  did_you_mean?: string;
  /** Why it ended nothing. Absent if it was applied. */
  reason?: "no_environment" | "no_condition" | "no_lease" | "already_ended" | "not_begun" | "began_later";
}

export interface RenewRequest {
  /** Replaces the lease's own settings. Absent keeps them. */
  settings?: LeaseSettings;
}

export interface Resources {
  /** CPU limit in thousandths of a core. */
  cpu_millis?: number;
  /** Billed disk size in MB, and the limit of /workspace and /data together. */
  disk_mb?: number;
  /** Memory limit in MiB. */
  memory_mb?: number;
  /** Largest number of processes and threads. */
  pids_limit?: number;
}

export interface RotateToken {
  /** The ceiling of the next token. Default: the previous one. */
  ceiling?: Ceiling;
  /** How long the previous tokens stay valid. Default: 0. */
  overlap?: string;
}

export interface RunOutput {
  data?: string;
  encoding?: "base64";
  error?: Problem;
  result?: RunResult;
  stream?: "stdout" | "stderr" | "files";
}

export interface RunRequest {
  environment_id: string;
  /** Default: a new agent for this run. */
  agent_did?: string;
  /** verifier: run as a second user of the sandbox, while all other processes of the sandbox are frozen. An error if one of them ran anyway. For test verdicts. Other commands wait, and get 409 verifier_runs at their timeout. */
  as?: "verifier";
  /** Paths and patterns, such as results/**​/*.json, to return as a tar stream after the command. A path with *, ?, [ or { is a pattern. */
  collect?: string[];
  /** Program and arguments, without a shell. */
  command?: string[];
  /** In /workspace or /data. Default /workspace. */
  cwd?: string;
  /** Respond with 202 and the started command. It keeps running without its caller, and takes no stdin. */
  detach?: boolean;
  env?: Record<string, string>;
  /** Id for idempotent retries: a repeat of the request returns the same command. Input and values of variables are not compared. Never reusable. Default: generated. */
  id?: string;
  /** Image of this run. Default: the environment's. Another one needs the scope admin. Not on Cloudflare. */
  image?: string;
  /** Time allowed for creating the sandbox and copying files, 5s to 1h. Default 2m0s. */
  margin?: string;
  /** none, or the environment's own. LLM routes are there with none, too. Not on Cloudflare. */
  network?: "none" | "restricted" | "full";
  /** Bytes to keep of each stream of collected output. Default 1 MiB. */
  output_limit?: number;
  /** Size of this run. Default: the environment's; 0 keeps a field. More than the environment has needs the scope admin. Not on Cloudflare. */
  resources?: Resources;
  /** A line for the image's /bin/sh instead of command, only in sessions. The session keeps the variables that it exports and its final directory. */
  shell?: string;
  /** Author of a session's command. Default agent. */
  source?: "user" | "agent" | "system";
  stdin?: string;
  stdin_encoding?: "base64";
  /** At most 24h; the exit code is then 124. Default: the environment's command_timeout. */
  timeout?: string;
  /** "uid" or "uid:gid" in numbers; root needs the environment's confinement.allow_root. Default: the sandbox's user. */
  user?: string;
}

export interface RunResult {
  /** A duration in Go syntax. */
  duration: string;
  exit_code: number;
  /** The lease of the run at its end, with its cost. */
  lease: Lease;
  stderr_bytes: number;
  /** Bytes written. */
  stdout_bytes: number;
  /** The id of the command. */
  exec_id?: string;
  /** The collected files, a tar stream in base64. */
  files?: string;
  /** Paths to collect that do not exist or cannot be read completely. */
  missing?: string[];
  oom_killed?: boolean;
  stderr?: string;
  stderr_encoding?: "base64";
  stdout?: string;
  stdout_encoding?: "base64";
  timed_out?: boolean;
  truncated?: boolean;
}

export interface Session {
  created_at: string;
  /** Directory in which the next command starts. */
  cwd: string;
  generation: number;
  id: string;
  /** Sequence of its latest event. */
  last_sequence: number;
  lease_id: string;
  /** Size of its recording. */
  recorded_bytes: number;
  sandbox_id: string;
  /** A session closes when it is closed or when its lease ends. */
  state: "open" | "closed";
  /** When it was closed, or when its lease ended. */
  closed_at?: string;
  /** When its recording was deleted to make room for newer output. */
  dropped_at?: string;
  env_names?: string[];
  /** The running command, if there is one. */
  exec_id?: string;
  /** The recording has reached its limit, and later output is not recorded. */
  full?: boolean;
  /** Only in the response of create-session: the request opened the session, and did not repeat an earlier one. */
  is_new?: boolean;
  /** User of its commands. Absent: the sandbox's user. */
  user?: string;
}

export interface SessionEvent {
  at: string;
  data: string;
  sequence: number;
  source: "user" | "agent" | "system";
  type: "input" | "output" | "error" | "system";
  encoding?: "base64";
  /** The command of the event. */
  exec_id?: string;
}

export interface SessionEventPage {
  events: SessionEvent[];
  next_after?: number;
}

export interface SessionPage {
  sessions: Session[];
}

export interface Snapshot {
  agent_did: string;
  bytes: number;
  environment_id: string;
  files: number;
  generation: number;
  key: string;
  sandbox_id: string;
  saved_at: string;
  sha256: string;
  unpacked_bytes: number;
  skipped?: number;
}

export interface SnapshotSpec {
  /** While the lease is active, changes by commands and files are saved at most this often; 0s disables checkpoints. Default 1m. */
  checkpoint_every?: string;
  /** What happens to a sandbox whose last snapshot cannot be saved: retry keeps it frozen and retries; discard destroys it. Default retry. */
  on_persist_failure?: "retry" | "discard";
  /** How long retry keeps the frozen sandbox. Default 24h, at most 168h. */
  retry_for?: string;
  /** Which leases share a snapshot. agent_environment: those of an agent in this environment. agent: those of an agent in all environments, for tokens with the same environment patterns. Default agent_environment. */
  scope?: "agent_environment" | "agent";
  /** Largest size of a snapshot, unpacked, in MiB. Default 256, at most 10240. */
  size_limit_mb?: number;
}

export interface StatePage {
  states: Snapshot[];
}

export interface Statement {
  /** Sum of usage periods at list price. */
  gross_usd: string;
  /** Usage that the account's plan includes; it is subtracted. */
  included_usd: string;
  lines: AccountLine[];
  /** gross_usd - included_usd + plan_fee_usd */
  net_usd: string;
  /** The account's plan fee. */
  plan_fee_usd: string;
  /** Name of the price book whose plan the account was on. */
  price_book: string;
  /** Source of its prices. */
  source: string;
  /** Date of its source. */
  as_of?: string;
}

export interface StoredDelivery {
  /** The message as received. */
  body: string;
  environment_id: string;
  id: string;
  /** Number of leases that it ended. Their condition.applied events name the delivery. */
  matched: number;
  occurred_at: string;
  received_at: string;
  source: string;
  status: "applied" | "stale" | "unmatched";
  type: string;
  agent_did?: string;
  /** Only if unmatched: the condition that was probably meant. */
  did_you_mean?: string;
  generation?: number;
  /** Why it ended nothing. Absent if it was applied. */
  reason?: "no_environment" | "no_condition" | "no_lease" | "already_ended" | "not_begun" | "began_later";
}

export interface SweepFinding {
  action: "destroy" | "record" | "keep";
  kind: "vanished" | "stopped" | "out_of_memory" | "changed" | "orphan" | "leftover" | "usage";
  created_at?: string;
  environment_id?: string;
  expected?: string;
  field?: string;
  first_seen_at?: string;
  lease_id?: string;
  observed?: string;
  sandbox_id?: string;
  why?: string;
}

export interface SweepReport {
  dry_run: boolean;
  instances: InstanceSweep[];
  ledger_id: string;
}

export interface SweepRequest {
  /** Report only: change nothing and destroy nothing. */
  dry_run?: boolean;
}

export interface Token {
  created_at: string;
  id: string;
  name: string;
  scopes: string[];
  ceiling?: Ceiling;
  created_by?: string;
  environments?: string[];
  expires_at?: string;
  last_used_at?: string;
  revoked_at?: string;
  revoked_by?: string;
}

export interface TokenPage {
  tokens: Token[];
}

export interface UsageSample {
  at: string;
  /** CPU time since the sandbox last started. */
  cpu_time: string;
  memory_bytes: number;
  pids: number;
  /** Mean CPU use since the previous sample, in thousandths of a core. Absent if that sample is more than three minutes old, or the sandbox has started since. */
  cpu_millis?: number;
}

export interface WarmPool {
  /** Number of sandboxes that wait, 0 to 100. */
  size: number;
  /** Largest size, at most 100. After a burst of leases within 10s the pool grows up to this size; it shrinks 10m later. Default: it does not grow. */
  max_size?: number;
  /** paused: waiting sandboxes sleep by sleep_mode and cost what sleeping sandboxes cost; an acquire wakes one. running: waiting sandboxes are awake and cost as such; an acquire needs no wake. Default paused. */
  mode?: "paused" | "running";
  /** Create no new sandboxes; those that wait are still leased. */
  paused?: boolean;
  /** A waiting sandbox is replaced after this time. Default 24h. */
  ttl?: string;
}

export interface Workspace {
  /** Branch of each lease. {agent}, {environment}, {lease} and {generation} are replaced. Default sandbox/{agent}/{generation}. */
  branch?: string;
  /** Git repository that is fetched. */
  git?: GitSource;
  /** What becomes of the commits of a lease's branch when the lease ends: bundle keeps them and their diff for readers; push pushes them under push_prefix and keeps the diff, and keeps the bundle if the push fails; discard loses them. Default bundle. */
  on_end?: "bundle" | "push" | "discard";
  /** Directory in the sandbox, below /workspace. It is replaced. Default: /workspace and the name of the repository. */
  path?: string;
  /** Lets callers push a lease's branch to the repository, under this prefix and the branch's name, such as agents/. The service pushes, with the credential. Not with file://, which is only read. Default: no push. */
  push_prefix?: string;
}

export interface WorkspacePushed {
  /** Branch of the repository. */
  branch: string;
  commit: string;
  url: string;
}
