terraform {
  required_version = ">= 1.11"
  required_providers {
    sandbox = {
      source = "sandbox-lease/sandbox"
    }
  }
}

provider "sandbox" {
  docker = {
    price_book = "${path.module}/prices.json"
  }
}

variable "image" {
  type    = string
  default = "busybox:1.36"
}

variable "players" {
  type    = number
  default = 8
}

resource "sandbox_environment" "arena" {
  name          = "arena-1"
  type          = "catan"
  image         = var.image
  instance_type = "basic"

  network = {
    mode = "none"
  }

  # The expected usage and the cap of the estimated monthly cost.
  expected_usage = {
    leases            = var.players
    hours_per_day     = 4
    cpu_share_percent = 10
  }
  max_monthly_cost_usd = "50.00"

  # The budget of a calendar month: an acquire that could exceed it fails.
  budget = {
    monthly_usd = "50.00"
  }
}

resource "sandbox_lease" "ada" {
  agent_did      = "did:plc:ada"
  environment_id = sandbox_environment.arena.id
}
