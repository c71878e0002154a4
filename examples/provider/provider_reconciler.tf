# A reconciler puts idle sandboxes to sleep, ends leases on time, and receives conditions from games.
# Its token comes from SANDBOX_RECONCILER_TOKEN, and estimates use its prices.
provider "sandbox" {
  alias = "games"

  reconciler = {
    url = "https://reconciler.example.com"
  }

  docker = {
    context = "games"
  }
}
