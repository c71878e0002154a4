// Generated from the OpenAPI document by "go test ./sdk -run DocumentSays -update". Do not edit.

import { Transport, milliseconds, segment, type CallOptions } from "./transport.js";
import type * as types from "./types.js";

/** Each method is the operation of the same name of the OpenAPI document. */
export class Operations extends Transport {
  /** Acquire a lease for an agent in an environment. */
  acquireLease(
    body: types.Acquire,
    query: { respondAsync?: boolean } = {},
    options: CallOptions = {},
  ): Promise<types.Acquired> {
    const { respondAsync = false } = query;
    return this.call("POST", `/v1/leases`, { ...options, body, slow: !respondAsync, respondAsync });
  }

  /** Acquire leases for several agents at once. */
  acquireLeases(
    body: types.AcquireBatch,
    query: { respondAsync?: boolean } = {},
    options: CallOptions = {},
  ): Promise<types.AcquiredBatch> {
    const { respondAsync = false } = query;
    return this.call("POST", `/v1/leases/batch`, { ...options, body, slow: !respondAsync, respondAsync });
  }

  /** Adopt the sandboxes of a ledger that was emptied, restored or lost. */
  adopt(
    body: types.AdoptRequest,
    options: CallOptions = {},
  ): Promise<types.AdoptReport> {
    return this.call("POST", `/v1/adopt`, { ...options, body, slow: true });
  }

  /** Check every sandbox on its backend against the confinement rules. */
  audit(
    body: types.AuditRequest,
    options: CallOptions = {},
  ): Promise<types.AuditReport> {
    return this.call("POST", `/v1/audit`, { ...options, body, slow: true });
  }

  /** Kill a command and its processes, and wait for their exit. */
  cancelExec(
    id: string,
    exec: string,
    options: CallOptions = {},
  ): Promise<types.Exec> {
    return this.call("POST", `/v1/leases/${segment(id)}/execs/${segment(exec)}/cancel`, { ...options, slow: true });
  }

  /** Check the creation or change of an environment, and change nothing. */
  checkEnvironment(
    id: string,
    body: types.PutEnvironment,
    options: CallOptions = {},
  ): Promise<void> {
    return this.call("POST", `/v1/environments/${segment(id)}/check`, { ...options, body, slow: true });
  }

  /** Close a session and cancel its running command; the recording stays. */
  closeSession(
    id: string,
    session: string,
    query: { generation?: number } = {},
    options: CallOptions = {},
  ): Promise<types.Session> {
    return this.call("DELETE", `/v1/leases/${segment(id)}/sessions/${segment(session)}`, { ...options, query, slow: true });
  }

  /** Open a session in a lease's sandbox. */
  createSession(
    id: string,
    body: types.CreateSession,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.Session> {
    return this.call("POST", `/v1/leases/${segment(id)}/sessions`, { ...options, query, body, once: !body.id });
  }

  /** Create a token and return its text, this one time. */
  createToken(
    body: types.CreateToken,
    options: CallOptions = {},
  ): Promise<types.CreatedToken> {
    return this.call("POST", `/v1/tokens`, { ...options, body, once: true });
  }

  /** Delete an environment and wait until its sandboxes are gone. */
  deleteEnvironment(
    id: string,
    query: { force?: boolean; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<void> {
    return this.call("DELETE", `/v1/environments/${segment(id)}`, { ...options, query, slow: true });
  }

  /** End a lease and wait until its sandbox is gone. */
  deleteLease(
    id: string,
    query: { generation?: number; owner?: string; respondAsync?: boolean } = {},
    options: CallOptions = {},
  ): Promise<types.Lease> {
    const { respondAsync = false, ...rest } = query;
    return this.call("DELETE", `/v1/leases/${segment(id)}`, { ...options, query: rest, slow: !respondAsync, respondAsync });
  }

  /** Delete the snapshot with a key; the next lease with that key starts empty. */
  deleteState(
    key: string,
    options: CallOptions = {},
  ): Promise<void> {
    return this.call("DELETE", `/v1/states/${segment(key)}`, { ...options });
  }

  /** Report the usage and the costs of sandboxes. */
  getCosts(
    query: { environment_id?: string; agent_did?: string; labels?: string; from?: string; to?: string; group_by?: string } = {},
    options: CallOptions = {},
  ): Promise<types.CostReport> {
    return this.call("GET", `/v1/costs`, { ...options, query });
  }

  /** Show an environment. */
  getEnvironment(
    id: string,
    options: CallOptions = {},
  ): Promise<types.Environment> {
    return this.call("GET", `/v1/environments/${segment(id)}`, { ...options });
  }

  /** Show a command. */
  getExec(
    id: string,
    exec: string,
    options: CallOptions = {},
  ): Promise<types.Exec> {
    return this.call("GET", `/v1/leases/${segment(id)}/execs/${segment(exec)}`, { ...options });
  }

  /** Show a lease in its current generation. */
  getLease(
    id: string,
    query: { observe?: boolean } = {},
    options: CallOptions = {},
  ): Promise<types.Lease> {
    return this.call("GET", `/v1/leases/${segment(id)}`, { ...options, query, slow: true });
  }

  /** Identify the ledger. */
  getLedger(
    options: CallOptions = {},
  ): Promise<types.LedgerInfo> {
    return this.call("GET", `/v1/ledger`, { ...options });
  }

  /** Show a process. */
  getProcess(
    id: string,
    process: string,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.Process> {
    return this.call("GET", `/v1/leases/${segment(id)}/processes/${segment(process)}`, { ...options, query });
  }

  /** Show a session. */
  getSession(
    id: string,
    session: string,
    query: { generation?: number } = {},
    options: CallOptions = {},
  ): Promise<types.Session> {
    return this.call("GET", `/v1/leases/${segment(id)}/sessions/${segment(session)}`, { ...options, query });
  }

  /** Kill a process and its descendants, and wait for their exit. */
  killProcess(
    id: string,
    process: string,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.Process> {
    return this.call("DELETE", `/v1/leases/${segment(id)}/processes/${segment(process)}`, { ...options, query, slow: true });
  }

  /** Check whether a lease's sandbox is usable, without waking it. */
  leaseHealth(
    id: string,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.LeaseHealth> {
    return this.call("GET", `/v1/leases/${segment(id)}/health`, { ...options, query, slow: true });
  }

  /** Sample the resource usage of a lease's sandbox, without waking it. */
  leaseUsage(
    id: string,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.LeaseUsage> {
    return this.call("GET", `/v1/leases/${segment(id)}/usage`, { ...options, query, slow: true });
  }

  /** Show the past resource usage of a lease's sandbox. */
  leaseUsageHistory(
    id: string,
    query: { generation?: number; owner?: string; from?: string; to?: string } = {},
    options: CallOptions = {},
  ): Promise<types.LeaseUsageHistory> {
    return this.call("GET", `/v1/leases/${segment(id)}/usage/history`, { ...options, query, slow: true });
  }

  /** List the agents of leases that have not ended, by lease and name. */
  listAgents(
    query: { environment_id?: string; lease_id?: string; state?: string; after?: string; limit?: number } = {},
    options: CallOptions = {},
  ): Promise<types.AgentPage> {
    return this.call("GET", `/v1/agents`, { ...options, query });
  }

  /** List webhook deliveries with their outcome, latest first. */
  listDeliveries(
    query: { id?: string; environment_id?: string; status?: string; before?: string; limit?: number } = {},
    options: CallOptions = {},
  ): Promise<types.DeliveryPage> {
    return this.call("GET", `/v1/deliveries`, { ...options, query });
  }

  /** List drift between the ledger and the backends, newest first. */
  listDrift(
    query: { environment_id?: string; lease_id?: string; kind?: string; status?: string; limit?: number } = {},
    options: CallOptions = {},
  ): Promise<types.DriftPage> {
    return this.call("GET", `/v1/drift`, { ...options, query });
  }

  /** List environments that are not destroyed. */
  listEnvironments(
    query: { labels?: string } = {},
    options: CallOptions = {},
  ): Promise<types.EnvironmentPage> {
    return this.call("GET", `/v1/environments`, { ...options, query });
  }

  /** List or follow events. */
  listEvents(
    query: { environment_id?: string; lease_id?: string; sandbox_id?: string; type?: string; labels?: string; from_sequence?: number; after_id?: number; latest?: boolean; before_id?: number; limit?: number } = {},
    options: CallOptions = {},
  ): Promise<types.EventPage> {
    return this.call("GET", `/v1/events`, { ...options, query });
  }

  /** List the commands of a lease, latest first. */
  listExecs(
    id: string,
    query: { state?: string; before?: string; limit?: number } = {},
    options: CallOptions = {},
  ): Promise<types.ExecPage> {
    return this.call("GET", `/v1/leases/${segment(id)}/execs`, { ...options, query });
  }

  /** List a directory in a lease's sandbox. */
  listFiles(
    id: string,
    query: { generation?: number; owner?: string; path: string; after?: string; limit?: number },
    options: CallOptions = {},
  ): Promise<types.FilePage> {
    return this.call("GET", `/v1/leases/${segment(id)}/files/list`, { ...options, query, slow: true });
  }

  /** List leases by id. */
  listLeases(
    query: { environment_id?: string; agent_did?: string; status?: string; labels?: string; search?: string; sort?: string; after?: string; limit?: number; observe?: boolean } = {},
    options: CallOptions = {},
  ): Promise<types.LeasePage> {
    return this.call("GET", `/v1/leases`, { ...options, query, slow: true });
  }

  /** List the model calls with their tokens and costs, latest first. */
  listLlmCalls(
    query: { environment_id?: string; lease_id?: string; session?: string; before?: string; limit?: number } = {},
    options: CallOptions = {},
  ): Promise<types.LLMCallPage> {
    return this.call("GET", `/v1/llm-calls`, { ...options, query });
  }

  /** List the processes of a lease's current generation, by name. */
  listProcesses(
    id: string,
    options: CallOptions = {},
  ): Promise<types.ProcessPage> {
    return this.call("GET", `/v1/leases/${segment(id)}/processes`, { ...options });
  }

  /** Replay or follow the recording of a session. */
  listSessionEvents(
    id: string,
    session: string,
    query: { generation?: number; after?: number; limit?: number } = {},
    options: CallOptions = {},
  ): Promise<types.SessionEventPage> {
    return this.call("GET", `/v1/leases/${segment(id)}/sessions/${segment(session)}/events`, { ...options, query });
  }

  /** List the sessions of a lease, latest first. */
  listSessions(
    id: string,
    query: { state?: string; limit?: number } = {},
    options: CallOptions = {},
  ): Promise<types.SessionPage> {
    return this.call("GET", `/v1/leases/${segment(id)}/sessions`, { ...options, query });
  }

  /** List snapshots of /data, by key. */
  listStates(
    query: { environment_id?: string; agent_did?: string; after?: string; limit?: number } = {},
    options: CallOptions = {},
  ): Promise<types.StatePage> {
    return this.call("GET", `/v1/states`, { ...options, query });
  }

  /** List the tokens of the ledger, including expired and revoked ones. */
  listTokens(
    options: CallOptions = {},
  ): Promise<types.TokenPage> {
    return this.call("GET", `/v1/tokens`, { ...options });
  }

  /** Push the branch of a lease's workspace to its repository. */
  pushWorkspace(
    id: string,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.WorkspacePushed> {
    return this.call("POST", `/v1/leases/${segment(id)}/workspace/push`, { ...options, query, slow: true });
  }

  /** Create or change an environment. */
  putEnvironment(
    id: string,
    body: types.PutEnvironment,
    options: CallOptions = {},
  ): Promise<types.Environment> {
    return this.call("PUT", `/v1/environments/${segment(id)}`, { ...options, body, once: Boolean(body.create_only), slow: true });
  }

  /** End a lease and wait until its sandbox is gone. */
  releaseLease(
    id: string,
    query: { generation?: number; owner?: string; respondAsync?: boolean } = {},
    options: CallOptions = {},
  ): Promise<types.Lease> {
    const { respondAsync = false, ...rest } = query;
    return this.call("POST", `/v1/leases/${segment(id)}/release`, { ...options, query: rest, slow: !respondAsync, respondAsync });
  }

  /** Delete a file or directory in a lease's sandbox. */
  removeFile(
    id: string,
    query: { generation?: number; owner?: string; path: string; recursive?: boolean },
    options: CallOptions = {},
  ): Promise<void> {
    return this.call("DELETE", `/v1/leases/${segment(id)}/files`, { ...options, query, once: true, slow: true });
  }

  /** Renew a lease. */
  renewLease(
    id: string,
    body: types.RenewRequest,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.Lease> {
    return this.call("POST", `/v1/leases/${segment(id)}/renew`, { ...options, query, body });
  }

  /** Reopen an ended environment for new leases. */
  reopenEnvironment(
    id: string,
    options: CallOptions = {},
  ): Promise<types.Environment> {
    return this.call("POST", `/v1/environments/${segment(id)}/reopen`, { ...options });
  }

  /** Revoke the tokens of a name, or the token with an id. */
  revokeToken(
    token: string,
    options: CallOptions = {},
  ): Promise<types.TokenPage> {
    return this.call("DELETE", `/v1/tokens/${segment(token)}`, { ...options });
  }

  /** Create the next token of a name; the previous ones stay valid for the overlap. */
  rotateToken(
    token: string,
    body: types.RotateToken,
    options: CallOptions = {},
  ): Promise<types.CreatedToken> {
    return this.call("POST", `/v1/tokens/${segment(token)}/rotate`, { ...options, body, once: true });
  }

  /** Put a lease's sandbox to sleep. */
  sleepLease(
    id: string,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.Lease> {
    return this.call("POST", `/v1/leases/${segment(id)}/sleep`, { ...options, query, slow: true });
  }

  /** Start a background process in a lease's sandbox. */
  startProcess(
    id: string,
    body: types.ProcessSpec,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.Process> {
    return this.call("POST", `/v1/leases/${segment(id)}/processes`, { ...options, query, body, once: true, slow: true });
  }

  /** Describe a file, directory or symlink in a lease's sandbox. */
  statFile(
    id: string,
    query: { generation?: number; owner?: string; path: string },
    options: CallOptions = {},
  ): Promise<types.FileInfo> {
    return this.call("GET", `/v1/leases/${segment(id)}/files/stat`, { ...options, query, slow: true });
  }

  /** Compare every backend with the ledger now, and destroy orphans. */
  sweep(
    body: types.SweepRequest,
    options: CallOptions = {},
  ): Promise<types.SweepReport> {
    return this.call("POST", `/v1/sweep`, { ...options, body, slow: true });
  }

  /** Wait for a log line, an open port or the exit of a process. */
  waitProcess(
    id: string,
    process: string,
    body: types.ProcessWait,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.ProcessWaited> {
    return this.call("POST", `/v1/leases/${segment(id)}/processes/${segment(process)}/wait`, { ...options, query, body, slow: true, longer: milliseconds(body.timeout) });
  }

  /** Wake a lease's sandbox. */
  wakeLease(
    id: string,
    query: { generation?: number; owner?: string } = {},
    options: CallOptions = {},
  ): Promise<types.Lease> {
    return this.call("POST", `/v1/leases/${segment(id)}/wake`, { ...options, query, slow: true });
  }
}
