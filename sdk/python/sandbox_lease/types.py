# Generated from the OpenAPI document by "go test ./sdk -run DocumentSays -update". Do not edit.
"""The objects of the API, as its OpenAPI document has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class AccountLine(TypedDict):
    # How much the plan includes in a month.
    allotment: float
    # An exact amount in US dollars, with at most nine decimals.
    gross_usd: str
    # Amount that the allotment subtracts.
    included_usd: str
    resource: Literal['memory', 'cpu', 'disk', 'asleep']
    unit: Literal['GiB-hours', 'vCPU-minutes', 'GB-hours', 'hours']
    used: float


class AccountMonth(TypedDict):
    backend: str
    # Sum of usage periods at list price.
    gross_usd: str
    # Usage that the account's plan includes; it is subtracted.
    included_usd: str
    instance: str
    lines: list[AccountLine]
    month: str
    # gross_usd - included_usd + plan_fee_usd
    net_usd: str
    # The account's plan fee.
    plan_fee_usd: str
    # Name of the price book whose plan the account was on.
    price_book: str
    shadow: Statement
    # Source of its prices.
    source: str
    # Date of its source.
    as_of: NotRequired[str]


class Acquire(TypedDict):
    agent_did: str
    environment_id: str
    # Default: the caller's token.
    owner: NotRequired[str]
    settings: NotRequired[LeaseSettings]


class AcquireBatch(TypedDict):
    # One item for each lease. Two items must not name the same lease.
    items: list[BatchItem]
    # Lease every item or none: if one fails, the leases that the batch began are released.
    all_or_none: NotRequired[bool]
    # Default for items that name none.
    environment_id: NotRequired[str]
    # Default for items that name none. Default: the caller's token.
    owner: NotRequired[str]
    # Defaults for the items. Each setting of an item overrides its default.
    settings: NotRequired[LeaseSettings]


class Acquired(TypedDict):
    is_new: bool
    lease: Lease


class AcquiredBatch(TypedDict):
    # One result per item, in the order of the items.
    results: list[AcquiredItem]


class AcquiredItem(TypedDict):
    # Whether this batch created the lease.
    is_new: bool
    # Why the item failed.
    error: NotRequired[Problem]
    # Absent if the item failed.
    lease: NotRequired[Lease]


class AdoptReport(TypedDict):
    dry_run: bool
    ledger_id: str
    sandboxes: list[Adoption]


class AdoptRequest(TypedDict):
    # Report only.
    dry_run: NotRequired[bool]
    # End the adopted leases at once.
    end: NotRequired[bool]
    environment_id: NotRequired[str]
    # The lost ledger that created the sandboxes. Default: this ledger.
    ledger_id: NotRequired[str]


class Adoption(TypedDict):
    adopted: bool
    backend: str
    environment_id: str
    generation: int
    instance: str
    sandbox_id: str
    state: str
    created_at: NotRequired[str]
    deadline: NotRequired[str]
    lease_id: NotRequired[str]
    why: NotRequired[str]


class Agent(TypedDict):
    # The agent that holds the lease.
    agent_did: str
    environment_id: str
    generation: int
    id: str
    lease_id: str
    name: str
    # Requests to this path, and below it, are passed on to the agent.
    path: str
    port: int
    state: Literal['starting', 'running', 'asleep', 'ended']
    description: NotRequired[str]
    error: NotRequired[str]
    started_at: NotRequired[str]


class AgentPage(TypedDict):
    agents: list[Agent]
    next_after: NotRequired[str]


class Allotment(TypedDict):
    cpu_seconds: int
    disk_gb_seconds: int
    memory_gib_seconds: int


class Archive(TypedDict):
    # SHA-256 of the file, as 64 lower-case hexadecimal digits.
    sha256: str
    # Directory in the sandbox that it is unpacked into: /workspace or a path below. Files that are there are
    # replaced.
    target: str
    # URL with https, such as that of an object in a bucket, or with http. Its host must be allowed by the
    # service (--workspace-allow, without TLS as http://host). The query of a presigned URL is stored and
    # shown with the environment.
    url: str
    # Header of the credential. Default Authorization.
    credential_header: NotRequired[str]
    # Name of the secret that is sent as the value of a header, such as Bearer and a token. No sandbox gets
    # this secret. Default: none.
    credential_secret: NotRequired[str]


class AuditCheck(TypedDict):
    object: str
    rule: str
    title: str
    verdict: Literal['pass', 'finding', 'inapplicable']
    detail: NotRequired[str]
    environment_id: NotRequired[str]
    lease_id: NotRequired[str]
    sandbox_id: NotRequired[str]


class AuditReport(TypedDict):
    instances: list[InstanceAudit]
    ledger_id: str


class AuditRequest(TypedDict):
    environment_id: NotRequired[str]


class BatchItem(TypedDict):
    agent_did: str
    environment_id: NotRequired[str]
    owner: NotRequired[str]
    settings: NotRequired[LeaseSettings]


class Budget(TypedDict):
    # US dollars that leases may cost in a calendar month (UTC), at list price. An acquire is refused if it
    # leaves no room for an hour of the lease, and leases end when it is spent. Docker costs nothing unless a
    # price book is configured.
    monthly_usd: str


class BudgetUse(TypedDict):
    month: str
    # An exact amount in US dollars, with at most nine decimals.
    monthly_usd: str
    # What live leases are likely to cost in the next hour, and the most that running model calls can cost.
    reserved_usd: str
    # An exact amount in US dollars, with at most nine decimals.
    spent_usd: str
    # Part of spent_usd for model calls.
    llm_usd: NotRequired[str]


class Ceiling(TypedDict):
    # Largest cpu_millis. Default: 2000, on Cloudflare that of basic.
    cpu_millis: NotRequired[int]
    # Largest disk_mb. Default: 10240, on Cloudflare that of basic.
    disk_mb: NotRequired[int]
    # Largest number of environments that match the token's patterns. Default: no limit.
    environments: NotRequired[int]
    # Largest number of leases that an environment may have at once, and of sandboxes in its warm pool.
    # Default: no limit.
    leases: NotRequired[int]
    # Largest memory_mb. Default: 4096, on Cloudflare that of basic.
    memory_mb: NotRequired[int]
    # Widest network mode. Default restricted.
    network: NotRequired[Literal['none', 'restricted', 'full']]
    # Largest open_files. Default 16384.
    open_files: NotRequired[int]
    # Largest pids_limit. Default: 256, on Cloudflare that of basic.
    pids_limit: NotRequired[int]
    # Sandboxes may run as root. Default false.
    root: NotRequired[bool]
    # Largest run_mb. Default 16.
    run_mb: NotRequired[int]
    # Container runtimes that environments may name. Default: none, so that only the engine's default runtime
    # is used.
    runtimes: NotRequired[list[str]]
    # Environments may set their own seccomp profile. Default false.
    seccomp: NotRequired[bool]
    # Largest state.size_limit_mb. Default 256.
    state_mb: NotRequired[int]
    # Largest tmp_mb. Default 512.
    tmp_mb: NotRequired[int]
    # Environments may mount host directories writable, if the service allows the directory. Default false.
    writable_mounts: NotRequired[bool]


class Companion(TypedDict):
    # Image reference on the engine, pinned by digest or id if possible.
    image: str
    # The program and its arguments, run without a shell. Default: the entrypoint and command of the image.
    command: NotRequired[list[str]]
    # Environment variables. Do not put secrets here.
    env: NotRequired[dict[str, str]]
    # When the companion is ready, and healthy later. It must have command or port. Default: ready as soon as
    # its program has started, and not checked later.
    health_check: NotRequired[CompanionHealthCheck]
    # Limits. They add to the billed size of the sandbox. Default: 512 MiB, 0.5 cores, 256 processes, 1024 MB
    # of disk.
    resources: NotRequired[Resources]
    # Whether it starts again: on_failure does so after its program ended with an exit code other than 0, and
    # when it becomes unhealthy, at most 5 times. Default never.
    restart: NotRequired[Literal['never', 'on_failure']]
    # Names of the environment's secrets that the companion gets as files in /run/secrets. Default: none.
    secrets: NotRequired[list[str]]


class CompanionHealthCheck(TypedDict):
    # A program in the companion that ends with exit code 0 once it is healthy, with its arguments, run
    # without a shell.
    command: NotRequired[list[str]]
    # Pause between two checks, 100ms to 10m. A companion that is ready is checked at most every 10s. Default
    # 1s.
    interval: NotRequired[str]
    # A path that must answer GET on the port with a status from 200 to 399. Default: a connection is enough.
    path: NotRequired[str]
    # A TCP port on 127.0.0.1 that accepts connections once the companion is healthy.
    port: NotRequired[int]
    # The companion failed if it is not healthy this long after its start. 1s to 10m. Default 1m.
    start_period: NotRequired[str]
    # Limit of one check, 100ms to 10m. Once the companion is ready, at most 30s. Default 5s.
    timeout: NotRequired[str]


class CompanionStatus(TypedDict):
    image: str
    name: str
    restarts: int
    # When it entered its state.
    since: str
    state: Literal['starting', 'ready', 'unhealthy', 'failed']
    message: NotRequired[str]


class Condition(TypedDict):
    data: ConditionData
    timestamp: str
    type: str


class ConditionData(TypedDict):
    environment_id: str
    agent_did: NotRequired[str]
    generation: NotRequired[int]
    reason: NotRequired[str]


class Confinement(TypedDict):
    # Permit user or group 0 in user. Even root has no capabilities here. Default false.
    allow_root: NotRequired[bool]
    # billed (default): disk_mb is billed; if /workspace and /data together exceed it, the sandbox's programs
    # are killed. enforced: in addition, a quota limits each of the two to disk_mb; an engine without quotas
    # refuses the environment.
    disk_limit: NotRequired[Literal['billed', 'enforced']]
    # Largest number of open files of one process, 64 to 1048576. Default 16384.
    open_files: NotRequired[int]
    # Size of /run in MiB, 1 to 1024, at most a sixteenth of the memory. Its content counts as memory. Default
    # 16, or a sixteenth of the memory if that is less.
    run_mb: NotRequired[int]
    # Container runtime, such as runsc. The engine must have it. Default: the engine's default runtime.
    runtime: NotRequired[str]
    # Seccomp profile as JSON text. It replaces the built-in profile and must deny by default.
    seccomp_profile: NotRequired[str]
    # Size of /tmp in MiB, 1 to 32768, at most half of the memory. Its content counts as memory. Default 512,
    # or half of the memory if that is less.
    tmp_mb: NotRequired[int]
    # Numeric user and group that the code of every sandbox runs as, as uid:gid. Sandboxes with the same user
    # share the kernel's limits for it. Default: a separate user for each sandbox.
    user: NotRequired[str]


class Copy(TypedDict):
    # Absolute path on the service's machine.
    source: str
    # Path of the file, or of the directory, under /workspace or /data.
    target: str


class CostReport(TypedDict):
    # What each account owes for each whole calendar month that the report touches, whatever the query
    # selects. Empty for a token that is limited to environments.
    accounts: list[AccountMonth]
    as_of: str
    price_books: dict[str, PriceBook]
    rows: list[CostRow]
    total: CostRow


class CostRow(TypedDict):
    asleep_seconds: float
    awake_seconds: float
    cpu_seconds: float
    generations: int
    # Cost of sandboxes at list price.
    gross_usd: str
    # What the same usage of sandboxes would cost on Cloudflare at list price.
    shadow_gross_usd: str
    # gross_usd + llm.cost_usd
    total_usd: str
    agent_did: NotRequired[str]
    day: NotRequired[str]
    environment_id: NotRequired[str]
    # Value of the label that the report groups by.
    label: NotRequired[str]
    lease_id: NotRequired[str]
    # What model calls used, at the list prices of their routes.
    llm: NotRequired[LLMUse]
    month: NotRequired[str]


class CreateSession(TypedDict):
    # In /workspace or /data. Default /workspace.
    cwd: NotRequired[str]
    # Initial variables. The ledger stores their values encrypted. No response contains them.
    env: NotRequired[dict[str, str]]
    # Id for idempotent retries: a repeat of the request returns the same session. Never reusable. Default:
    # generated.
    id: NotRequired[str]
    # "uid" or "uid:gid" in numbers; root needs the environment's confinement.allow_root. Default: the
    # sandbox's user.
    user: NotRequired[str]


class CreateToken(TypedDict):
    # Name of the token's holder: 1 to 63 letters, digits, '.', '_' and '-'.
    name: str
    # read, lease, conditions, admin. lease includes read; admin includes all.
    scopes: list[str]
    # Raises the safe default limits of a token that is limited to environments.
    ceiling: NotRequired[Ceiling]
    # Patterns, such as catan-*, of the environments that the token may touch. An empty list is an error.
    # Default: all environments, and what belongs to none.
    environments: NotRequired[list[str]]
    # When the token expires. Default: never.
    expires_at: NotRequired[str]


class CreatedToken(TypedDict):
    created_at: str
    id: str
    name: str
    scopes: list[str]
    token: str
    ceiling: NotRequired[Ceiling]
    created_by: NotRequired[str]
    environments: NotRequired[list[str]]
    expires_at: NotRequired[str]
    last_used_at: NotRequired[str]
    revoked_at: NotRequired[str]
    revoked_by: NotRequired[str]


class DeliveryPage(TypedDict):
    deliveries: list[StoredDelivery]
    next_before: NotRequired[str]


class DiskUsage(TypedDict):
    bytes: int
    complete: bool
    files: int


class DriftFinding(TypedDict):
    first_seen_at: str
    id: int
    instance: str
    kind: Literal['vanished', 'stopped', 'out_of_memory', 'changed', 'orphan', 'leftover', 'usage']
    last_seen_at: str
    sandbox_id: str
    environment_id: NotRequired[str]
    expected: NotRequired[str]
    field: NotRequired[str]
    lease_id: NotRequired[str]
    observed: NotRequired[str]
    resolution: NotRequired[str]
    resolved_at: NotRequired[str]


class DriftPage(TypedDict):
    findings: list[DriftFinding]


class Egress(TypedDict):
    # The allowed hosts; all others are refused.
    allow: list[EgressRule]
    # Certificates of authorities, in PEM, that hosts with a credential may have theirs from, beside the
    # public ones, such as that of a self-hosted Git server. At most 64 KiB. Docker only.
    authorities: NotRequired[str]
    # Credentials that the gateway adds to requests to allowed hosts by TLS, by host, such as github.com. No
    # sandbox gets them. Docker only.
    credentials: NotRequired[dict[str, EgressCredential]]
    # Private ranges that an allowed host may be in, such as that of a self-hosted model. Other private
    # addresses are refused.
    private_cidrs: NotRequired[list[str]]


class EgressCredential(TypedDict):
    # Name of the secret. No sandbox gets this secret.
    secret: str
    # Header that gets the credential. Default: Authorization.
    header: NotRequired[str]
    # bearer: the word Bearer and the secret. basic: username and the secret as the password, as git needs it.
    # raw: the secret alone. Default: bearer in Authorization, raw in another header.
    scheme: NotRequired[Literal['bearer', 'basic', 'raw']]
    # User of the scheme basic, such as x-access-token for a token of GitHub.
    username: NotRequired[str]


class EgressRule(TypedDict):
    # A name such as api.github.com, or *.example.com for all subdomains of example.com, without example.com
    # itself.
    host: str
    # Default: 443 and 80.
    ports: NotRequired[list[int]]


class Endpoint(TypedDict):
    # TCP port on the sandbox's 127.0.0.1 where the process serves HTTP, 1 to 65535.
    port: int
    # What the agent does, at most 200 bytes. Default: empty.
    description: NotRequired[str]


class Environment(TypedDict):
    backend: Literal['docker', 'cloudflare']
    created_at: str
    epoch: int
    id: str
    # Image reference, pinned by digest or id if possible.
    image: str
    # The ledger's latest event when this was read: follow events after it.
    last_event_id: int
    # The environment's leases whose sandboxes are not deleted, by sandbox_state.
    leases: LeaseCounts
    network: Literal['none', 'restricted', 'full']
    # Number of open drift findings.
    open_drift: int
    owner: str
    status: Literal['open', 'ended', 'deleting', 'destroyed']
    # Sets the default expiry conditions.
    type: Literal['rpg', 'catan', 'coding', 'custom']
    updated_at: str
    # Tar archives, plain or compressed with gzip or zstd, that each sandbox starts with. The service fetches
    # them; credentials stay outside. At most 16. Docker only. Default: none.
    archives: NotRequired[list[Archive]]
    # Refuses acquires that could exceed a monthly amount. Ends the environment's leases once it is spent.
    # Default: no limit.
    budget: NotRequired[Budget]
    budget_use: NotRequired[BudgetUse]
    # Tools that the image must have, by name, such as git or python. Each sandbox is checked before its lease
    # is ready; a lease whose image lacks one fails. Default: none.
    builtin_tools: NotRequired[list[str]]
    # Time limit of commands that set none, 1s to 24h. Default 2m.
    command_timeout: NotRequired[str]
    # Containers that live with each sandbox and share its network, by name, at most 4. They are ready before
    # its lease is. A change applies to later generations. Docker only.
    companions: NotRequired[dict[str, Companion]]
    # Isolation settings beyond those that every sandbox has.
    confinement: NotRequired[Confinement]
    # Host files and directories that are copied into each sandbox when it is created.
    copies: NotRequired[list[Copy]]
    drift: NotRequired[list[DriftFinding]]
    # What sandboxes may reach in a restricted network. Default: github.com, api.github.com,
    # raw.githubusercontent.com and cdn.jsdelivr.net.
    egress: NotRequired[Egress]
    # All conditions that ended the environment, in their order. A lease that names one of them is not
    # granted.
    end_conditions: NotRequired[list[str]]
    ended_at: NotRequired[str]
    ended_by: NotRequired[str]
    # Environment variables of every sandbox. Do not put secrets here.
    env: NotRequired[dict[str, str]]
    # Environment variables that no sandbox and no command may have, in addition to those that are always
    # blocked.
    env_blocked: NotRequired[list[str]]
    # Environment variables of the service that are passed to sandboxes, read when a sandbox is created. *
    # stands for all that the operator allows by name and that are set. env overrides them. The engine shows
    # their values: use secrets for secrets.
    env_passthrough: NotRequired[list[str]]
    # Conditions that end leases of this environment. At most 32.
    expiry_conditions: NotRequired[list[str]]
    # missing: the engine pulls images that it does not have, those of companions too. Docker only. Default
    # never.
    image_pull: NotRequired[Literal['never', 'missing']]
    # Initial text files, by path relative to /data, for sandboxes that start without a snapshot.
    initial_state: NotRequired[dict[str, str]]
    instance: NotRequired[str]
    # Keeps the whole disk of a sandbox while it sleeps. On Cloudflare it needs the scheduling policy
    # durable_object, and the default keeps only /data; a change applies to later generations. On Docker a
    # sleeping sandbox always keeps its disk. Default false.
    keep_disk: NotRequired[bool]
    # Labels of the environment and of its leases: filters of lists, events and costs. At most 32, without
    # commas.
    labels: NotRequired[dict[str, str]]
    # Routes to models by name. A sandbox calls them without a key; the environment's gateway adds it and
    # records tokens and cost.
    llm: NotRequired[dict[str, LLMRoute]]
    # A lease ends this long after it began, even if it is renewed. Default 240h.
    max_lifetime: NotRequired[str]
    # Host directories mounted into sandboxes, read-only unless writable.
    mounts: NotRequired[list[Mount]]
    pool: NotRequired[PoolStatus]
    # How long a sandbox that failed after it was ready is kept, stopped, for inspection; 0s removes it at
    # once. At most 720h, and never longer than the service's cleanup TTL. Default 1h.
    post_mortem: NotRequired[str]
    # Commands that run once in each sandbox, one after another, before its lease is ready. If one fails, the
    # lease fails.
    post_start: NotRequired[list[PostStart]]
    # Processes that start in every sandbox as soon as it is ready, at most 16. A change applies to later
    # generations.
    processes: NotRequired[list[ProcessSpec]]
    # Size of a sandbox. Default 512 MiB, 500 thousandths of a core, 256 processes and 10240 MB, on Cloudflare
    # those of basic. An environment that has the former default of 4096 MiB or 2000 thousandths keeps it
    # where a change leaves it out.
    resources: NotRequired[Resources]
    retired_at: NotRequired[str]
    # Names of the secrets that every sandbox gets as files in /run/secrets. A new name requires a value in
    # secret_values. A secret that is left out is deleted.
    secrets: NotRequired[list[str]]
    # Prompts by skill, written to /data/skills/<skill>/prompt.md at the start of each generation.
    skills: NotRequired[dict[str, str]]
    # An idle sandbox sleeps after this time; 0s disables sleep. Default 5m.
    sleep_after: NotRequired[str]
    sleep_mode: NotRequired[Literal['pause', 'stop']]
    # Keeps /data from one generation of a lease to the next. Default: /data is deleted with its sandbox.
    state: NotRequired[SnapshotSpec]
    # A lease ends this long after its last activity. Default 24h.
    ttl: NotRequired[str]
    # Keeps sandboxes ready for the next acquires. Default: none.
    warm_pool: NotRequired[WarmPool]
    # Git repository that each sandbox starts with. The service fetches it; its credential stays outside.
    # Docker only. Default: none.
    workspace: NotRequired[Workspace]


class EnvironmentPage(TypedDict):
    environments: list[Environment]


class Event(TypedDict):
    at: str
    environment_id: str
    id: int
    type: str
    actor: NotRequired[str]
    address: NotRequired[str]
    data: NotRequired[Any]
    generation: NotRequired[int]
    lease_id: NotRequired[str]
    sandbox_id: NotRequired[str]
    sequence: NotRequired[int]


class EventPage(TypedDict):
    events: list[Event]
    next_after_id: NotRequired[int]


Exec = TypedDict(
    "Exec",
    {
        "command": "list[str]",
        "cwd": "str",
        "generation": "int",
        "id": "str",
        "last_event_sequence": "int",
        "lease_id": "str",
        "sandbox_id": "str",
        # When the service accepted it.
        "started_at": "str",
        # finished: it ended on its own or timed out. failed: it could not run, or its result is unknown.
        # cancelled: a request, the end of its lease or its caller's disconnect ended it.
        "state": "Literal['running', 'finished', 'failed', 'cancelled']",
        # Bytes written, once it has ended.
        "stderr_bytes": "int",
        # Bytes written, once it has ended.
        "stdout_bytes": "int",
        # Run time after which it is killed.
        "timeout": "str",
        # verifier: the command runs as the sandbox's verifier.
        "as": "NotRequired[Literal['verifier']]",
        # It runs without its caller.
        "detached": "NotRequired[bool]",
        # When its output was deleted to make room for newer output.
        "dropped_at": "NotRequired[str]",
        "env_names": "NotRequired[list[str]]",
        # Why it failed or was cancelled, or why its output is incomplete.
        "error": "NotRequired[str]",
        # The program's exit code, once the command has finished. A command that runs, failed or was cancelled
        # has none.
        "exit_code": "NotRequired[int]",
        # When it ended, also where the service learned of that later.
        "finished_at": "NotRequired[str]",
        # It was killed because the sandbox reached its memory limit.
        "oom_killed": "NotRequired[bool]",
        # The session that it runs in.
        "session_id": "NotRequired[str]",
        # It ran longer than its timeout and was killed; the exit code is then 124.
        "timed_out": "NotRequired[bool]",
        # Not all of its output is stored.
        "truncated": "NotRequired[bool]",
        "user": "NotRequired[str]",
    },
)


class ExecInput(TypedDict):
    data: str
    encoding: NotRequired[Literal['base64']]


class ExecOutput(TypedDict):
    data: NotRequired[str]
    encoding: NotRequired[Literal['base64']]
    error: NotRequired[Problem]
    result: NotRequired[ExecResult]
    stream: NotRequired[Literal['stdout', 'stderr']]


class ExecPage(TypedDict):
    execs: list[Exec]
    next_before: NotRequired[str]


ExecRequest = TypedDict(
    "ExecRequest",
    {
        # verifier: run as a second user of the sandbox, while all other processes of the sandbox are frozen.
        # An error if one of them ran anyway. For test verdicts. Other commands wait, and get 409
        # verifier_runs at their timeout.
        "as": "NotRequired[Literal['verifier']]",
        # Program and arguments, without a shell.
        "command": "NotRequired[list[str]]",
        # In /workspace or /data. Default /workspace.
        "cwd": "NotRequired[str]",
        # Respond with 202 and the started command. It keeps running without its caller, and takes no stdin.
        "detach": "NotRequired[bool]",
        "env": "NotRequired[dict[str, str]]",
        # Id for idempotent retries: a repeat of the request returns the same command. Input and values of
        # variables are not compared. Never reusable. Default: generated.
        "id": "NotRequired[str]",
        # Bytes to keep of each stream of collected output. Default 1 MiB.
        "output_limit": "NotRequired[int]",
        # A line for the image's /bin/sh instead of command, only in sessions. The session keeps the variables
        # that it exports and its final directory.
        "shell": "NotRequired[str]",
        # Author of a session's command. Default agent.
        "source": "NotRequired[Literal['user', 'agent', 'system']]",
        "stdin": "NotRequired[str]",
        "stdin_encoding": "NotRequired[Literal['base64']]",
        # At most 24h; the exit code is then 124. Default: the environment's command_timeout.
        "timeout": "NotRequired[str]",
        # "uid" or "uid:gid" in numbers; root needs the environment's confinement.allow_root. Default: the
        # sandbox's user.
        "user": "NotRequired[str]",
    },
)


class ExecResult(TypedDict):
    # A duration in Go syntax.
    duration: str
    exit_code: int
    stderr_bytes: int
    # Bytes written.
    stdout_bytes: int
    # The id of the command.
    exec_id: NotRequired[str]
    oom_killed: NotRequired[bool]
    stderr: NotRequired[str]
    stderr_encoding: NotRequired[Literal['base64']]
    stdout: NotRequired[str]
    stdout_encoding: NotRequired[Literal['base64']]
    timed_out: NotRequired[bool]
    truncated: NotRequired[bool]


class Field(TypedDict):
    name: str
    problem: str


class FileInfo(TypedDict):
    # Permissions, octal.
    mode: str
    modified_at: str
    # The last element of the path.
    name: str
    type: Literal['file', 'directory', 'symlink', 'other']
    name_encoding: NotRequired[Literal['base64']]
    # In bytes, for regular files only.
    size: NotRequired[int]
    # Target of a symlink.
    target: NotRequired[str]
    target_encoding: NotRequired[Literal['base64']]


class FilePage(TypedDict):
    files: list[FileInfo]


class GitSource(TypedDict):
    # URL of the repository, with https or ssh; ssh also as git@host:path. Its host must be allowed by the
    # service (--workspace-allow). With http, for a host that is allowed without TLS (--workspace-allow
    # http://host). Or file:// and the absolute path of a repository on the service's machine, whose directory
    # must be allowed (--mount-allow). Commits are read from it, and nothing is written to it.
    url: str
    # Name of the secret that is the password or token, or the private key for ssh. No sandbox gets this
    # secret. Required with ssh, not with file. Default: none.
    credential_secret: NotRequired[str]
    # Number of commits of history; 0 fetches all. Default 0.
    depth: NotRequired[int]
    # Lines with the keys that an ssh server may have, as in ~/.ssh/known_hosts. No other key is trusted.
    # Default: those of the service (--workspace-known-hosts).
    known_hosts: NotRequired[str]
    # Branch, tag, full name below refs/, or commit of 40 digits. Default: the HEAD of the repository.
    ref: NotRequired[str]
    # Fetch submodules too, from hosts that the service allows. They get the credential only from the
    # repository's own host. Default false.
    submodules: NotRequired[bool]
    # User that goes with the credential. Default x-access-token. Not with ssh, whose URL names the user.
    username: NotRequired[str]


class InstanceAudit(TypedDict):
    backend: str
    checks: list[AuditCheck]
    error: NotRequired[str]
    instance: NotRequired[str]


class InstanceSweep(TypedDict):
    backend: str
    findings: list[SweepFinding]
    instance: str
    error: NotRequired[str]


class LLMCall(TypedDict):
    agent_did: str
    # An exact amount in US dollars, with at most nine decimals.
    cost_usd: str
    environment_id: str
    generation: int
    id: str
    lease_id: str
    model: str
    outcome: Literal['running', 'completed', 'rejected', 'unsent', 'interrupted']
    route: str
    sandbox_id: str
    started_at: str
    tokens: LLMTokens
    ended_at: NotRequired[str]
    # What the agent works for, as the agent itself says with X-Sandbox-Session.
    session: NotRequired[str]
    # HTTP status of the upstream.
    status: NotRequired[int]
    # The upstream did not report what the call used: cost_usd is the most that it can have cost.
    unknown: NotRequired[bool]


class LLMCallPage(TypedDict):
    calls: list[LLMCall]
    next_before: NotRequired[str]


class LLMLimits(TypedDict):
    # Number of calls.
    requests: NotRequired[int]
    # Input and output tokens together.
    tokens: NotRequired[int]
    # US dollars at list price.
    usd: NotRequired[str]


class LLMModel(TypedDict):
    # US dollars for a million input tokens.
    input_usd_per_million: str
    # US dollars for a million output tokens, those of reasoning included.
    output_usd_per_million: str
    # US dollars for a million input tokens that the upstream puts into its cache. Default: twice
    # input_usd_per_million for anthropic, the most that it charges; otherwise input_usd_per_million.
    cache_write_usd_per_million: NotRequired[str]
    # US dollars for a million input tokens from the upstream's cache. Default: input_usd_per_million.
    cached_input_usd_per_million: NotRequired[str]
    # The most input tokens of a call. Default 200000.
    max_input_tokens: NotRequired[int]
    # The most output tokens of a call. A call that asks for more is refused. Default 32768.
    max_output_tokens: NotRequired[int]


class LLMRoute(TypedDict):
    # Protocol of the upstream.
    api: Literal['openai', 'anthropic', 'openrouter']
    # Name of the secret that is the upstream's key. No sandbox gets this secret.
    credential: str
    # Prices and bounds of the models that may be called, by the name that requests use. Other models are
    # refused.
    models: dict[str, LLMModel]
    # Limits of each lease, from its beginning.
    lease_limits: NotRequired[LLMLimits]
    # Limits of the environment in a calendar month (UTC).
    monthly_limits: NotRequired[LLMLimits]
    # Where the prices are from, such as the address of a price list.
    price_source: NotRequired[str]
    # Date of the prices, as 2026-11-24.
    prices_as_of: NotRequired[str]
    # Base URL of the API, without /v1, such as that of a LiteLLM proxy. Default: https://api.openai.com,
    # https://api.anthropic.com or https://openrouter.ai/api, by api.
    upstream: NotRequired[str]


class LLMTokens(TypedDict):
    # Input tokens written to the upstream's cache.
    cache_write: int
    # Input tokens read from the upstream's cache.
    cached_input: int
    # Input tokens that were neither read from the upstream's cache nor written to it.
    input: int
    # Output tokens, those of reasoning included.
    output: int


class LLMUse(TypedDict):
    # Number of calls that have ended.
    calls: int
    # Cost at the routes' list prices.
    cost_usd: str
    tokens: LLMTokens
    # Calls whose upstream did not report what they used.
    unknown_calls: int
    # Part of cost_usd: the most that those calls can have cost.
    unknown_usd: str


class Lease(TypedDict):
    agent_did: str
    backend: str
    # An exact amount in US dollars, with at most nine decimals.
    cost_usd: str
    environment_id: str
    expires_at: str
    expiry_conditions: list[str]
    generation: int
    id: str
    image: str
    last_activity: str
    # The ledger's latest event when this was read: follow events after it.
    last_event_id: int
    last_sequence: int
    leased_at: str
    # A duration in Go syntax.
    max_lifetime: str
    network: str
    owner: str
    phase: Literal['pending', 'awake', 'asleep', 'gone']
    resources: Resources
    sandbox_id: str
    # State of the sandbox. status is the status of the lease.
    sandbox_state: Literal['pending', 'ready', 'asleep', 'stopped', 'failed', 'deleting', 'deleted']
    # A duration in Go syntax.
    sleep_after: str
    sleep_mode: str
    status: Literal['pending', 'active', 'expired', 'destroyed']
    # A duration in Go syntax.
    ttl: str
    # Directory in which commands start and the agent works: always /workspace.
    workspace_path: str
    attempts: NotRequired[int]
    # Companions of the sandbox, by name.
    companions: NotRequired[list[CompanionStatus]]
    # The engine's id of the sandbox's container, while there is one that this reconciler has seen. Docker
    # only.
    container_id: NotRequired[str]
    destroyed_at: NotRequired[str]
    drift: NotRequired[list[DriftFinding]]
    end_reason: NotRequired[str]
    ended_at: NotRequired[str]
    ended_by: NotRequired[str]
    # Why the sandbox failed or stopped on its own, as a code.
    error_code: NotRequired[str]
    # Why the sandbox failed or stopped on its own, as text.
    error_message: NotRequired[str]
    instance: NotRequired[str]
    # When a failed sandbox is removed; until then it is kept, stopped, for a post-mortem. Releasing its
    # generation removes it earlier.
    kept_until: NotRequired[str]
    # Labels of the lease and of its environment.
    labels: NotRequired[dict[str, str]]
    last_error: NotRequired[str]
    # What model calls have used, beside cost_usd.
    llm: NotRequired[LLMUse]
    observed_at: NotRequired[str]
    ready_at: NotRequired[str]
    retired_at: NotRequired[str]
    settings: NotRequired[LeaseSettings]
    # When the sandbox was last started or woken, while it is awake.
    started_at: NotRequired[str]
    state: NotRequired[LeaseSnapshot]
    # When sandbox_state last changed.
    state_changed_at: NotRequired[str]
    # Why the sandbox is asleep or stopped: idle_ttl, request, warm_pool, last_save, outside or crashed.
    stop_reason: NotRequired[str]


class LeaseCounts(TypedDict):
    asleep: int
    deleting: int
    failed: int
    pending: int
    ready: int
    stopped: int


class LeaseHealth(TypedDict):
    backend_reachable: bool
    checked_at: str
    generation: int
    healthy: bool
    lease_id: str
    phase: Literal['pending', 'awake', 'asleep', 'gone']
    sandbox_id: str
    status: Literal['pending', 'active', 'expired', 'destroyed']
    problem: NotRequired[str]
    state: NotRequired[str]


class LeasePage(TypedDict):
    leases: list[Lease]
    next_after: NotRequired[str]


class LeaseSettings(TypedDict):
    # Conditions that end this lease instead of those of the environment. At most 32.
    expiry_conditions: NotRequired[list[str]]
    # Labels in addition to those of the environment, whose values they cannot change. At most 32, without
    # commas.
    labels: NotRequired[dict[str, str]]
    # Fixed when the lease begins.
    max_lifetime: NotRequired[str]
    # A duration in Go syntax.
    sleep_after: NotRequired[str]
    # A duration in Go syntax.
    ttl: NotRequired[str]


class LeaseSnapshot(TypedDict):
    key: str
    role: Literal['waiting', 'holder', 'copy', 'done', 'lost']
    error: NotRequired[str]
    failing_since: NotRequired[str]
    gives_up_at: NotRequired[str]
    restored_from: NotRequired[Snapshot]
    saved_at: NotRequired[str]
    unsaved_since: NotRequired[str]


class LeaseUsage(TypedDict):
    # CPU time since the sandbox last started.
    cpu_time: str
    generation: int
    lease_id: str
    limits: Resources
    memory_bytes: int
    pids: int
    sampled_at: str
    sandbox_id: str
    state: str
    # Mean CPU use since the last sample of the history, in percent of one core. Absent if that sample is more
    # than three minutes old, or the sandbox has started since.
    cpu_percent: NotRequired[float]
    disk: NotRequired[DiskUsage]


class LeaseUsageHistory(TypedDict):
    generation: int
    lease_id: str
    limits: Resources
    samples: list[UsageSample]
    sandbox_id: str


class LedgerInfo(TypedDict):
    id: str
    # The latest event: follow events after it.
    last_event_id: int
    price_books: dict[str, PriceBook]
    version: str
    # Costs before this moment are kept by UTC day.
    detail_since: NotRequired[str]
    # Events up to this one are not all retained: a reader cannot continue from before it.
    purged_event_id: NotRequired[int]


class Mount(TypedDict):
    # Absolute path on the service's machine. The engine must run on the same machine.
    source: str
    # Absolute path in the sandbox.
    target: str
    writable: NotRequired[bool]


class PoolStatus(TypedDict):
    pending: int
    ready: int
    failures: NotRequired[int]
    last_error: NotRequired[str]
    retry_at: NotRequired[str]


class PostStart(TypedDict):
    # The program and its arguments, run without a shell.
    command: list[str]
    # Environment variables of the command, in addition to those of the sandbox. Do not put secrets here.
    env: NotRequired[dict[str, str]]
    # After this time the command, everything it started, and the lease end. Default 2m, at most 1h.
    timeout: NotRequired[str]
    # Numeric uid or uid:gid. Root requires confinement.allow_root. Default: the sandbox's user.
    user: NotRequired[str]


class PriceBook(TypedDict):
    as_of: str
    # An exact amount in US dollars, with at most nine decimals.
    asleep_disk_gb_second_usd: str
    # An exact amount in US dollars, with at most nine decimals.
    asleep_memory_gib_second_usd: str
    # An exact amount in US dollars, with at most nine decimals.
    cpu_second_usd: str
    # An exact amount in US dollars, with at most nine decimals.
    disk_gb_second_usd: str
    # An exact amount in US dollars, with at most nine decimals.
    memory_gib_second_usd: str
    name: str
    # An exact amount in US dollars, with at most nine decimals.
    plan_month_usd: str
    source: str
    included: NotRequired[Allotment]


class Problem(TypedDict):
    # Kind of failure, for programs.
    code: str
    # What was tried, on which object, why it failed, and what to do next.
    detail: str
    # The HTTP status.
    status: int
    # What the code means.
    title: str
    # urn:sandbox-lease:problem: followed by the code.
    type: str
    # The problems of the request by field.
    fields: NotRequired[list[Field]]
    # Refines the code, for programs.
    reason: NotRequired[str]
    # The id of the request in the server's log.
    request_id: NotRequired[str]


class Process(TypedDict):
    command: list[str]
    cwd: str
    generation: int
    lease_id: str
    name: str
    restart: Literal['no', 'always']
    sandbox_id: str
    # Number of starts.
    starts: int
    # pending: it starts at next_start_at.
    state: Literal['pending', 'running', 'exited', 'failed', 'killed', 'stopped']
    # The environment declares it.
    declared: NotRequired[bool]
    endpoint: NotRequired[Endpoint]
    env_names: NotRequired[list[str]]
    # Why it failed, or why it last ended.
    error: NotRequired[str]
    # The exit code of the latest exit. Absent before that, after a kill, and where it is not known, as error
    # says.
    exit_code: NotRequired[int]
    exited_at: NotRequired[str]
    # The earliest next start of a pending process.
    next_start_at: NotRequired[str]
    oom_killed: NotRequired[bool]
    # Time of the latest start.
    started_at: NotRequired[str]
    user: NotRequired[str]


class ProcessPage(TypedDict):
    processes: list[Process]


class ProcessSpec(TypedDict):
    # The program and its arguments, run without a shell.
    command: list[str]
    # 1 to 63 characters of a-z, 0-9, '.', '_' and '-', starting with a letter or digit.
    name: str
    # Working directory in /workspace or /data. Default /workspace.
    cwd: NotRequired[str]
    # Where the process serves HTTP: it is then an agent, which GET /v1/agents lists. Default: none.
    endpoint: NotRequired[Endpoint]
    # Environment variables in addition to those of the sandbox. The ledger stores them as long as the process
    # may start: do not put secrets here.
    env: NotRequired[dict[str, str]]
    # Whether it restarts after it exits on its own. Default no. A declared process always restarts after its
    # sandbox was stopped.
    restart: NotRequired[Literal['no', 'always']]
    # Numeric uid or uid:gid. Root requires confinement.allow_root. Default: the sandbox's user.
    user: NotRequired[str]


class ProcessWait(TypedDict):
    # Wait until the process has exited and is not restarted.
    exit: NotRequired[bool]
    # Wait for a log line that matches this regular expression (RE2). Earlier lines count.
    log: NotRequired[str]
    # Wait until this TCP port of the sandbox's 127.0.0.1 accepts connections, from any process.
    port: NotRequired[int]
    # Default 1m, at most 1h.
    timeout: NotRequired[str]


class ProcessWaited(TypedDict):
    command: list[str]
    cwd: str
    generation: int
    lease_id: str
    name: str
    restart: Literal['no', 'always']
    sandbox_id: str
    # Number of starts.
    starts: int
    # pending: it starts at next_start_at.
    state: Literal['pending', 'running', 'exited', 'failed', 'killed', 'stopped']
    # The environment declares it.
    declared: NotRequired[bool]
    endpoint: NotRequired[Endpoint]
    env_names: NotRequired[list[str]]
    # Why it failed, or why it last ended.
    error: NotRequired[str]
    # The exit code of the latest exit. Absent before that, after a kill, and where it is not known, as error
    # says.
    exit_code: NotRequired[int]
    exited_at: NotRequired[str]
    line: NotRequired[str]
    # The earliest next start of a pending process.
    next_start_at: NotRequired[str]
    offset: NotRequired[int]
    oom_killed: NotRequired[bool]
    # Time of the latest start.
    started_at: NotRequired[str]
    user: NotRequired[str]


class PutEnvironment(TypedDict):
    # Image reference, pinned by digest or id if possible.
    image: str
    # Tar archives, plain or compressed with gzip or zstd, that each sandbox starts with. The service fetches
    # them; credentials stay outside. At most 16. Docker only. Default: none.
    archives: NotRequired[list[Archive]]
    backend: NotRequired[Literal['docker', 'cloudflare']]
    # Refuses acquires that could exceed a monthly amount. Ends the environment's leases once it is spent.
    # Default: no limit.
    budget: NotRequired[Budget]
    # Tools that the image must have, by name, such as git or python. Each sandbox is checked before its lease
    # is ready; a lease whose image lacks one fails. Default: none.
    builtin_tools: NotRequired[list[str]]
    # Time limit of commands that set none, 1s to 24h. Default 2m.
    command_timeout: NotRequired[str]
    # Containers that live with each sandbox and share its network, by name, at most 4. They are ready before
    # its lease is. A change applies to later generations. Docker only.
    companions: NotRequired[dict[str, Companion]]
    # Isolation settings beyond those that every sandbox has.
    confinement: NotRequired[Confinement]
    # Host files and directories that are copied into each sandbox when it is created.
    copies: NotRequired[list[Copy]]
    create_only: NotRequired[bool]
    # What sandboxes may reach in a restricted network. Default: github.com, api.github.com,
    # raw.githubusercontent.com and cdn.jsdelivr.net.
    egress: NotRequired[Egress]
    # Environment variables of every sandbox. Do not put secrets here.
    env: NotRequired[dict[str, str]]
    # Environment variables that no sandbox and no command may have, in addition to those that are always
    # blocked.
    env_blocked: NotRequired[list[str]]
    # Environment variables of the service that are passed to sandboxes, read when a sandbox is created. *
    # stands for all that the operator allows by name and that are set. env overrides them. The engine shows
    # their values: use secrets for secrets.
    env_passthrough: NotRequired[list[str]]
    epoch: NotRequired[int]
    # Conditions that end leases of this environment. At most 32.
    expiry_conditions: NotRequired[list[str]]
    id: NotRequired[str]
    # missing: the engine pulls images that it does not have, those of companions too. Docker only. Default
    # never.
    image_pull: NotRequired[Literal['never', 'missing']]
    # Initial text files, by path relative to /data, for sandboxes that start without a snapshot.
    initial_state: NotRequired[dict[str, str]]
    # Backend instance to deploy to. Another instance than before moves the environment; its leases must have
    # ended.
    instance: NotRequired[str]
    # Keeps the whole disk of a sandbox while it sleeps. On Cloudflare it needs the scheduling policy
    # durable_object, and the default keeps only /data; a change applies to later generations. On Docker a
    # sleeping sandbox always keeps its disk. Default false.
    keep_disk: NotRequired[bool]
    # Labels of the environment and of its leases: filters of lists, events and costs. At most 32, without
    # commas.
    labels: NotRequired[dict[str, str]]
    # Routes to models by name. A sandbox calls them without a key; the environment's gateway adds it and
    # records tokens and cost.
    llm: NotRequired[dict[str, LLMRoute]]
    # A lease ends this long after it began, even if it is renewed. Default 240h.
    max_lifetime: NotRequired[str]
    # Host directories mounted into sandboxes, read-only unless writable.
    mounts: NotRequired[list[Mount]]
    network: NotRequired[Literal['none', 'restricted', 'full']]
    # Owner, who may change it. Default: the caller's token.
    owner: NotRequired[str]
    # How long a sandbox that failed after it was ready is kept, stopped, for inspection; 0s removes it at
    # once. At most 720h, and never longer than the service's cleanup TTL. Default 1h.
    post_mortem: NotRequired[str]
    # Commands that run once in each sandbox, one after another, before its lease is ready. If one fails, the
    # lease fails.
    post_start: NotRequired[list[PostStart]]
    # Processes that start in every sandbox as soon as it is ready, at most 16. A change applies to later
    # generations.
    processes: NotRequired[list[ProcessSpec]]
    # Size of a sandbox. Default 512 MiB, 500 thousandths of a core, 256 processes and 10240 MB, on Cloudflare
    # those of basic. An environment that has the former default of 4096 MiB or 2000 thousandths keeps it
    # where a change leaves it out.
    resources: NotRequired[Resources]
    # Values of new or changed secrets, by name. They are stored encrypted and never shown.
    secret_values: NotRequired[dict[str, str]]
    # Names of the secrets that every sandbox gets as files in /run/secrets. A new name requires a value in
    # secret_values. A secret that is left out is deleted.
    secrets: NotRequired[list[str]]
    # Prompts by skill, written to /data/skills/<skill>/prompt.md at the start of each generation.
    skills: NotRequired[dict[str, str]]
    # An idle sandbox sleeps after this time; 0s disables sleep. Default 5m.
    sleep_after: NotRequired[str]
    sleep_mode: NotRequired[Literal['pause', 'stop']]
    # Keeps /data from one generation of a lease to the next. Default: /data is deleted with its sandbox.
    state: NotRequired[SnapshotSpec]
    # A lease ends this long after its last activity. Default 24h.
    ttl: NotRequired[str]
    # Sets the default expiry conditions.
    type: NotRequired[Literal['rpg', 'catan', 'coding', 'custom']]
    # Keeps sandboxes ready for the next acquires. Default: none.
    warm_pool: NotRequired[WarmPool]
    # Git repository that each sandbox starts with. The service fetches it; its credential stays outside.
    # Docker only. Default: none.
    workspace: NotRequired[Workspace]


class Receipt(TypedDict):
    duplicate: bool
    id: str
    matched: int
    status: Literal['applied', 'stale', 'unmatched']
    # Only if unmatched: the condition on which leases end here and whose name is close to this type, which is
    # probably misspelled.
    did_you_mean: NotRequired[str]
    # Why it ended nothing. Absent if it was applied.
    reason: NotRequired[Literal['no_environment', 'no_condition', 'no_lease', 'already_ended', 'not_begun', 'began_later']]


class RenewRequest(TypedDict):
    # Replaces the lease's own settings. Absent keeps them.
    settings: NotRequired[LeaseSettings]


class Resources(TypedDict):
    # CPU limit in thousandths of a core.
    cpu_millis: NotRequired[int]
    # Billed disk size in MB, and the limit of /workspace and /data together.
    disk_mb: NotRequired[int]
    # Memory limit in MiB.
    memory_mb: NotRequired[int]
    # Largest number of processes and threads.
    pids_limit: NotRequired[int]


class RotateToken(TypedDict):
    # The ceiling of the next token. Default: the previous one.
    ceiling: NotRequired[Ceiling]
    # How long the previous tokens stay valid. Default: 0.
    overlap: NotRequired[str]


class RunOutput(TypedDict):
    data: NotRequired[str]
    encoding: NotRequired[Literal['base64']]
    error: NotRequired[Problem]
    result: NotRequired[RunResult]
    stream: NotRequired[Literal['stdout', 'stderr', 'files']]


RunRequest = TypedDict(
    "RunRequest",
    {
        "environment_id": "str",
        # Default: a new agent for this run.
        "agent_did": "NotRequired[str]",
        # verifier: run as a second user of the sandbox, while all other processes of the sandbox are frozen.
        # An error if one of them ran anyway. For test verdicts. Other commands wait, and get 409
        # verifier_runs at their timeout.
        "as": "NotRequired[Literal['verifier']]",
        # Paths and patterns, such as results/**/*.json, to return as a tar stream after the command. A path
        # with *, ?, [ or { is a pattern.
        "collect": "NotRequired[list[str]]",
        # Program and arguments, without a shell.
        "command": "NotRequired[list[str]]",
        # In /workspace or /data. Default /workspace.
        "cwd": "NotRequired[str]",
        # Respond with 202 and the started command. It keeps running without its caller, and takes no stdin.
        "detach": "NotRequired[bool]",
        "env": "NotRequired[dict[str, str]]",
        # Id for idempotent retries: a repeat of the request returns the same command. Input and values of
        # variables are not compared. Never reusable. Default: generated.
        "id": "NotRequired[str]",
        # Image of this run. Default: the environment's. Another one needs the scope admin. Not on Cloudflare.
        "image": "NotRequired[str]",
        # Time allowed for creating the sandbox and copying files, 5s to 1h. Default 2m0s.
        "margin": "NotRequired[str]",
        # none, or the environment's own. LLM routes are there with none, too. Not on Cloudflare.
        "network": "NotRequired[Literal['none', 'restricted', 'full']]",
        # Bytes to keep of each stream of collected output. Default 1 MiB.
        "output_limit": "NotRequired[int]",
        # Size of this run. Default: the environment's; 0 keeps a field. More than the environment has needs
        # the scope admin. Not on Cloudflare.
        "resources": "NotRequired[Resources]",
        # A line for the image's /bin/sh instead of command, only in sessions. The session keeps the variables
        # that it exports and its final directory.
        "shell": "NotRequired[str]",
        # Author of a session's command. Default agent.
        "source": "NotRequired[Literal['user', 'agent', 'system']]",
        "stdin": "NotRequired[str]",
        "stdin_encoding": "NotRequired[Literal['base64']]",
        # At most 24h; the exit code is then 124. Default: the environment's command_timeout.
        "timeout": "NotRequired[str]",
        # "uid" or "uid:gid" in numbers; root needs the environment's confinement.allow_root. Default: the
        # sandbox's user.
        "user": "NotRequired[str]",
    },
)


class RunResult(TypedDict):
    # A duration in Go syntax.
    duration: str
    exit_code: int
    # The lease of the run at its end, with its cost.
    lease: Lease
    stderr_bytes: int
    # Bytes written.
    stdout_bytes: int
    # The id of the command.
    exec_id: NotRequired[str]
    # The collected files, a tar stream in base64.
    files: NotRequired[str]
    # Paths to collect that do not exist or cannot be read completely.
    missing: NotRequired[list[str]]
    oom_killed: NotRequired[bool]
    stderr: NotRequired[str]
    stderr_encoding: NotRequired[Literal['base64']]
    stdout: NotRequired[str]
    stdout_encoding: NotRequired[Literal['base64']]
    timed_out: NotRequired[bool]
    truncated: NotRequired[bool]


class Session(TypedDict):
    created_at: str
    # Directory in which the next command starts.
    cwd: str
    generation: int
    id: str
    # Sequence of its latest event.
    last_sequence: int
    lease_id: str
    # Size of its recording.
    recorded_bytes: int
    sandbox_id: str
    # A session closes when it is closed or when its lease ends.
    state: Literal['open', 'closed']
    # When it was closed, or when its lease ended.
    closed_at: NotRequired[str]
    # When its recording was deleted to make room for newer output.
    dropped_at: NotRequired[str]
    env_names: NotRequired[list[str]]
    # The running command, if there is one.
    exec_id: NotRequired[str]
    # The recording has reached its limit, and later output is not recorded.
    full: NotRequired[bool]
    # Only in the response of create-session: the request opened the session, and did not repeat an earlier
    # one.
    is_new: NotRequired[bool]
    # User of its commands. Absent: the sandbox's user.
    user: NotRequired[str]


class SessionEvent(TypedDict):
    at: str
    data: str
    sequence: int
    source: Literal['user', 'agent', 'system']
    type: Literal['input', 'output', 'error', 'system']
    encoding: NotRequired[Literal['base64']]
    # The command of the event.
    exec_id: NotRequired[str]


class SessionEventPage(TypedDict):
    events: list[SessionEvent]
    next_after: NotRequired[int]


class SessionPage(TypedDict):
    sessions: list[Session]


class Snapshot(TypedDict):
    agent_did: str
    bytes: int
    environment_id: str
    files: int
    generation: int
    key: str
    sandbox_id: str
    saved_at: str
    sha256: str
    unpacked_bytes: int
    skipped: NotRequired[int]


class SnapshotSpec(TypedDict):
    # While the lease is active, changes by commands and files are saved at most this often; 0s disables
    # checkpoints. Default 1m.
    checkpoint_every: NotRequired[str]
    # What happens to a sandbox whose last snapshot cannot be saved: retry keeps it frozen and retries;
    # discard destroys it. Default retry.
    on_persist_failure: NotRequired[Literal['retry', 'discard']]
    # How long retry keeps the frozen sandbox. Default 24h, at most 168h.
    retry_for: NotRequired[str]
    # Which leases share a snapshot. agent_environment: those of an agent in this environment. agent: those of
    # an agent in all environments, for tokens with the same environment patterns. Default agent_environment.
    scope: NotRequired[Literal['agent_environment', 'agent']]
    # Largest size of a snapshot, unpacked, in MiB. Default 256, at most 10240.
    size_limit_mb: NotRequired[int]


class StatePage(TypedDict):
    states: list[Snapshot]


class Statement(TypedDict):
    # Sum of usage periods at list price.
    gross_usd: str
    # Usage that the account's plan includes; it is subtracted.
    included_usd: str
    lines: list[AccountLine]
    # gross_usd - included_usd + plan_fee_usd
    net_usd: str
    # The account's plan fee.
    plan_fee_usd: str
    # Name of the price book whose plan the account was on.
    price_book: str
    # Source of its prices.
    source: str
    # Date of its source.
    as_of: NotRequired[str]


class StoredDelivery(TypedDict):
    # The message as received.
    body: str
    environment_id: str
    id: str
    # Number of leases that it ended. Their condition.applied events name the delivery.
    matched: int
    occurred_at: str
    received_at: str
    source: str
    status: Literal['applied', 'stale', 'unmatched']
    type: str
    agent_did: NotRequired[str]
    # Only if unmatched: the condition that was probably meant.
    did_you_mean: NotRequired[str]
    generation: NotRequired[int]
    # Why it ended nothing. Absent if it was applied.
    reason: NotRequired[Literal['no_environment', 'no_condition', 'no_lease', 'already_ended', 'not_begun', 'began_later']]


class SweepFinding(TypedDict):
    action: Literal['destroy', 'record', 'keep']
    kind: Literal['vanished', 'stopped', 'out_of_memory', 'changed', 'orphan', 'leftover', 'usage']
    created_at: NotRequired[str]
    environment_id: NotRequired[str]
    expected: NotRequired[str]
    field: NotRequired[str]
    first_seen_at: NotRequired[str]
    lease_id: NotRequired[str]
    observed: NotRequired[str]
    sandbox_id: NotRequired[str]
    why: NotRequired[str]


class SweepReport(TypedDict):
    dry_run: bool
    instances: list[InstanceSweep]
    ledger_id: str


class SweepRequest(TypedDict):
    # Report only: change nothing and destroy nothing.
    dry_run: NotRequired[bool]


class Token(TypedDict):
    created_at: str
    id: str
    name: str
    scopes: list[str]
    ceiling: NotRequired[Ceiling]
    created_by: NotRequired[str]
    environments: NotRequired[list[str]]
    expires_at: NotRequired[str]
    last_used_at: NotRequired[str]
    revoked_at: NotRequired[str]
    revoked_by: NotRequired[str]


class TokenPage(TypedDict):
    tokens: list[Token]


class UsageSample(TypedDict):
    at: str
    # CPU time since the sandbox last started.
    cpu_time: str
    memory_bytes: int
    pids: int
    # Mean CPU use since the previous sample, in thousandths of a core. Absent if that sample is more than
    # three minutes old, or the sandbox has started since.
    cpu_millis: NotRequired[int]


class WarmPool(TypedDict):
    # Number of sandboxes that wait, 0 to 100.
    size: int
    # Largest size, at most 100. After a burst of leases within 10s the pool grows up to this size; it shrinks
    # 10m later. Default: it does not grow.
    max_size: NotRequired[int]
    # paused: waiting sandboxes sleep by sleep_mode and cost what sleeping sandboxes cost; an acquire wakes
    # one. running: waiting sandboxes are awake and cost as such; an acquire needs no wake. Default paused.
    mode: NotRequired[Literal['paused', 'running']]
    # Create no new sandboxes; those that wait are still leased.
    paused: NotRequired[bool]
    # A waiting sandbox is replaced after this time. Default 24h.
    ttl: NotRequired[str]


class Workspace(TypedDict):
    # Branch of each lease. {agent}, {environment}, {lease} and {generation} are replaced. Default
    # sandbox/{agent}/{generation}.
    branch: NotRequired[str]
    # Git repository that is fetched.
    git: NotRequired[GitSource]
    # What becomes of the commits of a lease's branch when the lease ends: bundle keeps them and their diff
    # for readers; push pushes them under push_prefix and keeps the diff, and keeps the bundle if the push
    # fails; discard loses them. Default bundle.
    on_end: NotRequired[Literal['bundle', 'push', 'discard']]
    # Directory in the sandbox, below /workspace. It is replaced. Default: /workspace and the name of the
    # repository.
    path: NotRequired[str]
    # Lets callers push a lease's branch to the repository, under this prefix and the branch's name, such as
    # agents/. The service pushes, with the credential. Not with file://, which is only read. Default: no
    # push.
    push_prefix: NotRequired[str]


class WorkspacePushed(TypedDict):
    # Branch of the repository.
    branch: str
    commit: str
    url: str
