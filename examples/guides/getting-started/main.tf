terraform {
  required_version = ">= 1.11"
  required_providers {
    sandbox = {
      source = "sandbox-lease/sandbox"
    }
  }
}

provider "sandbox" {}

# Base image of the player's image, from the engine or a registry.
variable "base" {
  type    = string
  default = "busybox:1.36"
}

resource "sandbox_container_image" "player" {
  name = "first-game/player"

  build = {
    context = "${path.module}/player"
    args    = { BASE = var.base }
  }
}

resource "sandbox_environment" "game" {
  name          = "first-game"
  type          = "rpg" # its leases end by agent.death, game.finished and campaign.ended
  image         = sandbox_container_image.player.reference
  instance_type = "lite"
  ttl           = "2h" # a lease that nobody uses ends after this

  network = {
    mode = "none"
  }
}

resource "sandbox_lease" "player" {
  for_each = toset(["did:plc:ann", "did:plc:bob"])

  agent_did      = each.key
  environment_id = sandbox_environment.game.id
}

output "sandboxes" {
  value = { for agent, lease in sandbox_lease.player : agent => lease.sandbox_id }
}
