data "sandbox_drift" "open" {
  status = "open"
}

# Drift shows in every plan until it is resolved. A finding that is about no lease names its sandbox or environment.
check "no_drift" {
  assert {
    condition = length(data.sandbox_drift.open.findings) == 0
    error_message = join("\n", [for f in data.sandbox_drift.open.findings : format("%s %s: %s is %s, not %s",
      coalesce(f.lease_id, f.sandbox_id, f.environment_id, f.instance), f.kind, coalesce(f.field, "sandbox"),
      coalesce(f.observed, "absent"), coalesce(f.expected, "absent"))
    ])
  }
}
