data "sandbox_cost" "month" {
  environment_id = sandbox_environment.arena.id
  from           = formatdate("YYYY-MM-01'T'00:00:00'Z'", plantimestamp())
  group_by       = "agent"
}

locals {
  game = one(data.sandbox_cost.month.environments)
}

# In whole cents: exact costs grow every second, and each growth would be a changed output.
output "this_month" {
  value = {
    spent     = format("%.2f", tonumber(local.game.spent_usd))
    projected = format("%.2f", tonumber(local.game.projected_usd))
    left      = format("%.2f", tonumber(local.game.left_usd))
    by_agent  = { for r in data.sandbox_cost.month.rows : r.agent_did => format("%.2f", tonumber(r.gross_usd)) }
  }
}

# Every plan warns, but does not fail, when the month's projection exceeds the budget.
check "within_budget" {
  assert {
    condition = tonumber(local.game.projected_usd) <= tonumber(local.game.budget_usd)
    error_message = format("arena-1 will have cost $%.2f by the end of %s; its budget is $%s.",
    tonumber(local.game.projected_usd), local.game.month, local.game.budget_usd)
  }
}
