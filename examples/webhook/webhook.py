"""Ends a game: python3 webhook.py ENVIRONMENT"""

import base64
import datetime
import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid


def send(condition: dict, attempts: int = 5) -> dict:
    """Sends a condition until it is stored. The id stays the same, so it is applied once."""
    key = base64.b64decode(os.environ["SANDBOX_WEBHOOK_SECRET"].removeprefix("whsec_"))
    body = json.dumps(condition).encode()
    message = f"msg_{uuid.uuid4().hex}"
    for attempt in range(1, attempts + 1):
        now = str(int(time.time()))
        mac = hmac.new(key, f"{message}.{now}.".encode() + body, hashlib.sha256).digest()
        request = urllib.request.Request(
            os.environ["SANDBOX_RECONCILER_URL"] + "/v1/conditions",
            data=body,
            headers={
                "Content-Type": "application/json",
                "webhook-id": message,
                "webhook-timestamp": now,
                "webhook-signature": "v1," + base64.b64encode(mac).decode(),
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if attempt == attempts or error.code not in (429, 502, 503, 504):
                raise SystemExit(f"{error}: {error.read().decode(errors='replace')}") from error
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            if attempt == attempts:
                raise
        time.sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")


if __name__ == "__main__":
    receipt = send(
        {
            "type": "game.finished",
            "timestamp": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            "data": {"environment_id": sys.argv[1]},
        }
    )
    print(f"{receipt['status']}, {receipt['matched']} leases ended")
