# Eight agents that play four hours a day, on sandboxes of two sizes.
output "monthly_cost" {
  value = {
    for size in ["basic", "standard-1"] :
    size => provider::sandbox::estimate_monthly_cost(size, 4, 10, 8).total_usd
  }
}
