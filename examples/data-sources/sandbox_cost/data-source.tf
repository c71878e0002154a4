data "sandbox_cost" "catan" {
  environment_id = "catan-7"
  from           = "2026-01-01T00:00:00Z"
  group_by       = "agent"
}

output "cost_by_agent" {
  value = { for r in data.sandbox_cost.catan.rows : r.agent_did => "${r.awake_hours} h, ${r.gross_usd} USD" }
}

# One row for each team, whatever the environment.
data "sandbox_cost" "teams" {
  labels   = { season = "3" }
  group_by = "label:team"
}

output "total_usd" {
  value = data.sandbox_cost.catan.total.total_usd
}
