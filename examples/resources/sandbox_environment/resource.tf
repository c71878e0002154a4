resource "sandbox_container_image" "player" {
  name = "examples/catan-player"

  build = {
    context = "${path.module}/../sandbox_container_image/player"
  }
}

resource "sandbox_environment" "catan" {
  name          = "catan-7"
  type          = "catan" # its leases end by game.finished
  image         = sandbox_container_image.player.reference
  instance_type = "basic"
  ttl           = "12h"

  network = {
    mode = "none"
  }

  env    = { BOARD = "coast" }
  labels = { team = "games" }

  # With a running reconciler, two sandboxes wait for agents that join.
  warm_pool = {
    size = 2
  }

  # What sandboxes really cost in a calendar month; an agent that could exceed it gets no sandbox.
  budget = {
    monthly_usd = "25.00"
  }

  # The plan shows what this will cost a month. If there is a price book, max_monthly_cost_usd makes it
  # fail above a cap.
  expected_usage = {
    leases            = 8
    hours_per_day     = 4
    cpu_share_percent = 10
  }
}
