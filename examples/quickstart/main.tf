# Two games whose agents play in their own sandboxes. `make quickstart` applies this and shows the result.

terraform {
  required_version = ">= 1.11"
  required_providers {
    sandbox = {
      source = "sandbox-lease/sandbox"
    }
  }
}

# SANDBOX_RECONCILER_URL and SANDBOX_RECONCILER_TOKEN select the reconciler.
provider "sandbox" {
  docker = {
    price_book = "${path.module}/prices.json"
  }
}

variable "backend" {
  description = "Where the sandboxes run: docker or cloudflare."
  type        = string
  default     = "docker"
}

locals {
  settlers = ["did:plc:ada", "did:plc:brin", "did:plc:cleo", "did:plc:dov"]
  heroes   = ["did:plc:kira", "did:plc:thorn"]
}

# The agents' program: it reads the state of a game as JSON and answers with an action.
resource "sandbox_container_image" "player" {
  name = "sandbox-quickstart/player"

  build = {
    context  = "${path.module}/player"
    platform = var.backend == "docker" ? null : "linux/amd64"
  }
}

# game.finished ends every lease of a game of Catan.
resource "sandbox_environment" "catan" {
  name          = "catan-7"
  type          = "catan"
  backend       = var.backend
  image         = sandbox_container_image.player.reference
  instance_type = "basic"

  network = {
    mode = "none"
  }

  expected_usage = {
    leases            = length(local.settlers)
    hours_per_day     = 4
    cpu_share_percent = 10
  }
}

resource "sandbox_lease" "settler" {
  for_each = toset(local.settlers)

  environment_id = sandbox_environment.catan.id
  agent_did      = each.key
}

# agent.death ends only the lease of the hero that it names.
resource "sandbox_environment" "rpg" {
  name          = "rpg-3"
  type          = "rpg"
  backend       = var.backend
  image         = sandbox_container_image.player.reference
  instance_type = "basic"

  network = {
    mode = "none"
  }
}

resource "sandbox_lease" "hero" {
  for_each = toset(local.heroes)

  environment_id = sandbox_environment.rpg.id
  agent_did      = each.key
}
