# Generated from the OpenAPI document by "go test ./sdk -run DocumentSays -update". Do not edit.
"""The operations of the API whose requests and answers are JSON."""

from __future__ import annotations

from typing import Optional

from . import types
from ._transport import Transport, seconds, segment


class Operations(Transport):
    """Each method is the operation of the same name of the OpenAPI document."""

    def acquire_lease(
        self,
        body: types.Acquire,
        *,
        respond_async: bool = False,
    ) -> types.Acquired:
        """Acquire a lease for an agent in an environment."""
        return self._call(
            "POST",
            f"/v1/leases",
            body=body,
            slow=not respond_async,
            respond_async=respond_async,
        )

    def acquire_leases(
        self,
        body: types.AcquireBatch,
        *,
        respond_async: bool = False,
    ) -> types.AcquiredBatch:
        """Acquire leases for several agents at once."""
        return self._call(
            "POST",
            f"/v1/leases/batch",
            body=body,
            slow=not respond_async,
            respond_async=respond_async,
        )

    def adopt(
        self,
        body: types.AdoptRequest,
    ) -> types.AdoptReport:
        """Adopt the sandboxes of a ledger that was emptied, restored or lost."""
        return self._call(
            "POST",
            f"/v1/adopt",
            body=body,
            slow=True,
        )

    def audit(
        self,
        body: types.AuditRequest,
    ) -> types.AuditReport:
        """Check every sandbox on its backend against the confinement rules."""
        return self._call(
            "POST",
            f"/v1/audit",
            body=body,
            slow=True,
        )

    def cancel_exec(
        self,
        id: str,
        exec: str,
    ) -> types.Exec:
        """Kill a command and its processes, and wait for their exit."""
        return self._call(
            "POST",
            f"/v1/leases/{segment(id)}/execs/{segment(exec)}/cancel",
            slow=True,
        )

    def check_environment(
        self,
        id: str,
        body: types.PutEnvironment,
    ) -> None:
        """Check the creation or change of an environment, and change nothing."""
        self._call(
            "POST",
            f"/v1/environments/{segment(id)}/check",
            body=body,
            slow=True,
        )

    def close_session(
        self,
        id: str,
        session: str,
        *,
        generation: Optional[int] = None,
    ) -> types.Session:
        """Close a session and cancel its running command; the recording stays."""
        return self._call(
            "DELETE",
            f"/v1/leases/{segment(id)}/sessions/{segment(session)}",
            query={"generation": generation},
            slow=True,
        )

    def create_session(
        self,
        id: str,
        body: types.CreateSession,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.Session:
        """Open a session in a lease's sandbox."""
        return self._call(
            "POST",
            f"/v1/leases/{segment(id)}/sessions",
            query={"generation": generation, "owner": owner},
            body=body,
            once=not body.get("id"),
        )

    def create_token(
        self,
        body: types.CreateToken,
    ) -> types.CreatedToken:
        """Create a token and return its text, this one time."""
        return self._call(
            "POST",
            f"/v1/tokens",
            body=body,
            once=True,
        )

    def delete_environment(
        self,
        id: str,
        *,
        force: Optional[bool] = None,
        owner: Optional[str] = None,
    ) -> None:
        """Delete an environment and wait until its sandboxes are gone."""
        self._call(
            "DELETE",
            f"/v1/environments/{segment(id)}",
            query={"force": force, "owner": owner},
            slow=True,
        )

    def delete_lease(
        self,
        id: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
        respond_async: bool = False,
    ) -> types.Lease:
        """End a lease and wait until its sandbox is gone."""
        return self._call(
            "DELETE",
            f"/v1/leases/{segment(id)}",
            query={"generation": generation, "owner": owner},
            slow=not respond_async,
            respond_async=respond_async,
        )

    def delete_state(
        self,
        key: str,
    ) -> None:
        """Delete the snapshot with a key; the next lease with that key starts empty."""
        self._call(
            "DELETE",
            f"/v1/states/{segment(key)}",
        )

    def get_costs(
        self,
        *,
        environment_id: Optional[str] = None,
        agent_did: Optional[str] = None,
        labels: Optional[str] = None,
        from_: Optional[str] = None,
        to: Optional[str] = None,
        group_by: Optional[str] = None,
    ) -> types.CostReport:
        """Report the usage and the costs of sandboxes."""
        return self._call(
            "GET",
            f"/v1/costs",
            query={"environment_id": environment_id, "agent_did": agent_did, "labels": labels, "from": from_, "to": to, "group_by": group_by},
        )

    def get_environment(
        self,
        id: str,
    ) -> types.Environment:
        """Show an environment."""
        return self._call(
            "GET",
            f"/v1/environments/{segment(id)}",
        )

    def get_exec(
        self,
        id: str,
        exec: str,
    ) -> types.Exec:
        """Show a command."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/execs/{segment(exec)}",
        )

    def get_lease(
        self,
        id: str,
        *,
        observe: Optional[bool] = None,
    ) -> types.Lease:
        """Show a lease in its current generation."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}",
            query={"observe": observe},
            slow=True,
        )

    def get_ledger(
        self,
    ) -> types.LedgerInfo:
        """Identify the ledger."""
        return self._call(
            "GET",
            f"/v1/ledger",
        )

    def get_process(
        self,
        id: str,
        process: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.Process:
        """Show a process."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/processes/{segment(process)}",
            query={"generation": generation, "owner": owner},
        )

    def get_session(
        self,
        id: str,
        session: str,
        *,
        generation: Optional[int] = None,
    ) -> types.Session:
        """Show a session."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/sessions/{segment(session)}",
            query={"generation": generation},
        )

    def kill_process(
        self,
        id: str,
        process: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.Process:
        """Kill a process and its descendants, and wait for their exit."""
        return self._call(
            "DELETE",
            f"/v1/leases/{segment(id)}/processes/{segment(process)}",
            query={"generation": generation, "owner": owner},
            slow=True,
        )

    def lease_health(
        self,
        id: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.LeaseHealth:
        """Check whether a lease's sandbox is usable, without waking it."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/health",
            query={"generation": generation, "owner": owner},
            slow=True,
        )

    def lease_usage(
        self,
        id: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.LeaseUsage:
        """Sample the resource usage of a lease's sandbox, without waking it."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/usage",
            query={"generation": generation, "owner": owner},
            slow=True,
        )

    def lease_usage_history(
        self,
        id: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
        from_: Optional[str] = None,
        to: Optional[str] = None,
    ) -> types.LeaseUsageHistory:
        """Show the past resource usage of a lease's sandbox."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/usage/history",
            query={"generation": generation, "owner": owner, "from": from_, "to": to},
            slow=True,
        )

    def list_agents(
        self,
        *,
        environment_id: Optional[str] = None,
        lease_id: Optional[str] = None,
        state: Optional[str] = None,
        after: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> types.AgentPage:
        """List the agents of leases that have not ended, by lease and name."""
        return self._call(
            "GET",
            f"/v1/agents",
            query={"environment_id": environment_id, "lease_id": lease_id, "state": state, "after": after, "limit": limit},
        )

    def list_deliveries(
        self,
        *,
        id: Optional[str] = None,
        environment_id: Optional[str] = None,
        status: Optional[str] = None,
        before: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> types.DeliveryPage:
        """List webhook deliveries with their outcome, latest first."""
        return self._call(
            "GET",
            f"/v1/deliveries",
            query={"id": id, "environment_id": environment_id, "status": status, "before": before, "limit": limit},
        )

    def list_drift(
        self,
        *,
        environment_id: Optional[str] = None,
        lease_id: Optional[str] = None,
        kind: Optional[str] = None,
        status: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> types.DriftPage:
        """List drift between the ledger and the backends, newest first."""
        return self._call(
            "GET",
            f"/v1/drift",
            query={"environment_id": environment_id, "lease_id": lease_id, "kind": kind, "status": status, "limit": limit},
        )

    def list_environments(
        self,
        *,
        labels: Optional[str] = None,
    ) -> types.EnvironmentPage:
        """List environments that are not destroyed."""
        return self._call(
            "GET",
            f"/v1/environments",
            query={"labels": labels},
        )

    def list_events(
        self,
        *,
        environment_id: Optional[str] = None,
        lease_id: Optional[str] = None,
        sandbox_id: Optional[str] = None,
        type: Optional[str] = None,
        labels: Optional[str] = None,
        from_sequence: Optional[int] = None,
        after_id: Optional[int] = None,
        latest: Optional[bool] = None,
        before_id: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> types.EventPage:
        """List or follow events."""
        return self._call(
            "GET",
            f"/v1/events",
            query={"environment_id": environment_id, "lease_id": lease_id, "sandbox_id": sandbox_id, "type": type, "labels": labels, "from_sequence": from_sequence, "after_id": after_id, "latest": latest, "before_id": before_id, "limit": limit},
        )

    def list_execs(
        self,
        id: str,
        *,
        state: Optional[str] = None,
        before: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> types.ExecPage:
        """List the commands of a lease, latest first."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/execs",
            query={"state": state, "before": before, "limit": limit},
        )

    def list_files(
        self,
        id: str,
        *,
        path: str,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
        after: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> types.FilePage:
        """List a directory in a lease's sandbox."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/files/list",
            query={"generation": generation, "owner": owner, "path": path, "after": after, "limit": limit},
            slow=True,
        )

    def list_leases(
        self,
        *,
        environment_id: Optional[str] = None,
        agent_did: Optional[str] = None,
        status: Optional[str] = None,
        labels: Optional[str] = None,
        search: Optional[str] = None,
        sort: Optional[str] = None,
        after: Optional[str] = None,
        limit: Optional[int] = None,
        observe: Optional[bool] = None,
    ) -> types.LeasePage:
        """List leases by id."""
        return self._call(
            "GET",
            f"/v1/leases",
            query={"environment_id": environment_id, "agent_did": agent_did, "status": status, "labels": labels, "search": search, "sort": sort, "after": after, "limit": limit, "observe": observe},
            slow=True,
        )

    def list_llm_calls(
        self,
        *,
        environment_id: Optional[str] = None,
        lease_id: Optional[str] = None,
        session: Optional[str] = None,
        before: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> types.LLMCallPage:
        """List the model calls with their tokens and costs, latest first."""
        return self._call(
            "GET",
            f"/v1/llm-calls",
            query={"environment_id": environment_id, "lease_id": lease_id, "session": session, "before": before, "limit": limit},
        )

    def list_processes(
        self,
        id: str,
    ) -> types.ProcessPage:
        """List the processes of a lease's current generation, by name."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/processes",
        )

    def list_session_events(
        self,
        id: str,
        session: str,
        *,
        generation: Optional[int] = None,
        after: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> types.SessionEventPage:
        """Replay or follow the recording of a session."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/sessions/{segment(session)}/events",
            query={"generation": generation, "after": after, "limit": limit},
        )

    def list_sessions(
        self,
        id: str,
        *,
        state: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> types.SessionPage:
        """List the sessions of a lease, latest first."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/sessions",
            query={"state": state, "limit": limit},
        )

    def list_states(
        self,
        *,
        environment_id: Optional[str] = None,
        agent_did: Optional[str] = None,
        after: Optional[str] = None,
        limit: Optional[int] = None,
    ) -> types.StatePage:
        """List snapshots of /data, by key."""
        return self._call(
            "GET",
            f"/v1/states",
            query={"environment_id": environment_id, "agent_did": agent_did, "after": after, "limit": limit},
        )

    def list_tokens(
        self,
    ) -> types.TokenPage:
        """List the tokens of the ledger, including expired and revoked ones."""
        return self._call(
            "GET",
            f"/v1/tokens",
        )

    def push_workspace(
        self,
        id: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.WorkspacePushed:
        """Push the branch of a lease's workspace to its repository."""
        return self._call(
            "POST",
            f"/v1/leases/{segment(id)}/workspace/push",
            query={"generation": generation, "owner": owner},
            slow=True,
        )

    def put_environment(
        self,
        id: str,
        body: types.PutEnvironment,
    ) -> types.Environment:
        """Create or change an environment."""
        return self._call(
            "PUT",
            f"/v1/environments/{segment(id)}",
            body=body,
            once=bool(body.get("create_only")),
            slow=True,
        )

    def release_lease(
        self,
        id: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
        respond_async: bool = False,
    ) -> types.Lease:
        """End a lease and wait until its sandbox is gone."""
        return self._call(
            "POST",
            f"/v1/leases/{segment(id)}/release",
            query={"generation": generation, "owner": owner},
            slow=not respond_async,
            respond_async=respond_async,
        )

    def remove_file(
        self,
        id: str,
        *,
        path: str,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
        recursive: Optional[bool] = None,
    ) -> None:
        """Delete a file or directory in a lease's sandbox."""
        self._call(
            "DELETE",
            f"/v1/leases/{segment(id)}/files",
            query={"generation": generation, "owner": owner, "path": path, "recursive": recursive},
            once=True,
            slow=True,
        )

    def renew_lease(
        self,
        id: str,
        body: types.RenewRequest,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.Lease:
        """Renew a lease."""
        return self._call(
            "POST",
            f"/v1/leases/{segment(id)}/renew",
            query={"generation": generation, "owner": owner},
            body=body,
        )

    def reopen_environment(
        self,
        id: str,
    ) -> types.Environment:
        """Reopen an ended environment for new leases."""
        return self._call(
            "POST",
            f"/v1/environments/{segment(id)}/reopen",
        )

    def revoke_token(
        self,
        token: str,
    ) -> types.TokenPage:
        """Revoke the tokens of a name, or the token with an id."""
        return self._call(
            "DELETE",
            f"/v1/tokens/{segment(token)}",
        )

    def rotate_token(
        self,
        token: str,
        body: types.RotateToken,
    ) -> types.CreatedToken:
        """Create the next token of a name; the previous ones stay valid for the overlap."""
        return self._call(
            "POST",
            f"/v1/tokens/{segment(token)}/rotate",
            body=body,
            once=True,
        )

    def sleep_lease(
        self,
        id: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.Lease:
        """Put a lease's sandbox to sleep."""
        return self._call(
            "POST",
            f"/v1/leases/{segment(id)}/sleep",
            query={"generation": generation, "owner": owner},
            slow=True,
        )

    def start_process(
        self,
        id: str,
        body: types.ProcessSpec,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.Process:
        """Start a background process in a lease's sandbox."""
        return self._call(
            "POST",
            f"/v1/leases/{segment(id)}/processes",
            query={"generation": generation, "owner": owner},
            body=body,
            once=True,
            slow=True,
        )

    def stat_file(
        self,
        id: str,
        *,
        path: str,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.FileInfo:
        """Describe a file, directory or symlink in a lease's sandbox."""
        return self._call(
            "GET",
            f"/v1/leases/{segment(id)}/files/stat",
            query={"generation": generation, "owner": owner, "path": path},
            slow=True,
        )

    def sweep(
        self,
        body: types.SweepRequest,
    ) -> types.SweepReport:
        """Compare every backend with the ledger now, and destroy orphans."""
        return self._call(
            "POST",
            f"/v1/sweep",
            body=body,
            slow=True,
        )

    def wait_process(
        self,
        id: str,
        process: str,
        body: types.ProcessWait,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.ProcessWaited:
        """Wait for a log line, an open port or the exit of a process."""
        return self._call(
            "POST",
            f"/v1/leases/{segment(id)}/processes/{segment(process)}/wait",
            query={"generation": generation, "owner": owner},
            body=body,
            slow=True,
            longer=seconds(body.get("timeout")),
        )

    def wake_lease(
        self,
        id: str,
        *,
        generation: Optional[int] = None,
        owner: Optional[str] = None,
    ) -> types.Lease:
        """Wake a lease's sandbox."""
        return self._call(
            "POST",
            f"/v1/leases/{segment(id)}/wake",
            query={"generation": generation, "owner": owner},
            slow=True,
        )
