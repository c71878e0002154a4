# With a reconciler, idle sandboxes go to sleep, leases end on time, and games post conditions to
# its webhook. Its token comes from SANDBOX_RECONCILER_TOKEN.
provider "sandbox" {
  alias = "games"

  reconciler {
    url = "https://reconciler.example.com"
  }

  docker {
    context    = "games"
    price_book = "${path.module}/prices.json"
  }
}
