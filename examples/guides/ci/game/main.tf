terraform {
  required_version = ">= 1.11"
  required_providers {
    sandbox = {
      source = "sandbox-lease/sandbox"
    }
  }
}

provider "sandbox" {}

variable "image" {
  type    = string
  default = "busybox:1.36"
}

resource "sandbox_environment" "game" {
  name  = "player-game"
  image = var.image

  image_pull = "missing"

  network = {
    mode = "none"
  }
}

resource "sandbox_lease" "player" {
  for_each = toset(["did:plc:kira", "did:plc:thorn", "did:plc:mira"])

  agent_did      = each.key
  environment_id = sandbox_environment.game.id
}
