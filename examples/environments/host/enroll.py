#!/usr/bin/env python3
"""Gives an agent's sandbox the key of its DID, and waits until its relay watcher listens.

    enroll.py did:plc:kira rpg-3 kira.pem

All agents of an environment have the same secrets, but a key belongs to one agent. So the agent's host writes the key
into that agent's sandbox, as a file that only the sandbox's user can read.
"""

import argparse
import sys
from pathlib import Path

from reconciler import Problem, Reconciler, lease_id

KEY_FILE = "/workspace/.agent/did-key.pem"


def enroll(reconciler: Reconciler, agent: str, environment: str, key: bytes, timeout: float = 120) -> str:
    """Returns the watcher's log line once it is connected as the agent. Errors: Problem."""
    lease = lease_id(agent, environment)
    reconciler.write_file(lease, KEY_FILE, key)
    return reconciler.wait_for_log(lease, "relay", "^Connected to relay", timeout)


def main() -> int:
    parser = argparse.ArgumentParser(description="Give an agent's sandbox the key of its DID.")
    parser.add_argument("agent", help="the agent's DID")
    parser.add_argument("environment", help="the environment's name")
    parser.add_argument("key", type=Path, help="its P-256 key, a PEM file")
    args = parser.parse_args()
    try:
        print(enroll(Reconciler.of_environment(), args.agent, args.environment, args.key.read_bytes()))
    except (Problem, OSError) as err:
        print(f"enroll: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
