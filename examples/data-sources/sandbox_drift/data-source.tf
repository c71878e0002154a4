data "sandbox_drift" "open" {
  status = "open"
}

# Drift shows in every plan until it is resolved.
check "no_drift" {
  assert {
    condition     = length(data.sandbox_drift.open.findings) == 0
    error_message = join("\n", [for f in data.sandbox_drift.open.findings : "${f.sandbox_id} ${f.kind}: ${f.field != null ? f.field : "sandbox"} is ${f.observed}, not ${f.expected}"])
  }
}
