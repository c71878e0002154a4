data "sandbox_cost" "month" {
  environment_id = sandbox_environment.arena.name
  from           = formatdate("YYYY-MM-01'T'00:00:00'Z'", plantimestamp())
  group_by       = "agent"
}

locals {
  standing = one(data.sandbox_cost.month.environments)
}

output "this_month" {
  value = {
    spent     = local.standing.spent_usd
    projected = local.standing.projected_usd
    left      = local.standing.left_usd
    by_agent  = { for r in data.sandbox_cost.month.rows : r.agent_did => r.gross_usd }
  }
}

# Every plan warns, but does not fail, when the month's projection exceeds the budget.
check "within_budget" {
  assert {
    condition     = tonumber(local.standing.projected_usd) <= tonumber(local.standing.budget_usd)
    error_message = "arena-1 will have cost $${local.standing.projected_usd} by the end of ${local.standing.month}; its budget is $${local.standing.budget_usd}."
  }
}
