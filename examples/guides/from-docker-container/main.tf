terraform {
  required_version = ">= 1.11"
  required_providers {
    sandbox = {
      source = "sandbox-lease/sandbox"
    }
  }
}

provider "sandbox" {}

variable "base" {
  type    = string
  default = "busybox:1.36"
}

import {
  to = sandbox_container_image.player
  id = "campaign/player:v1"
}

resource "sandbox_container_image" "player" {
  name = "campaign/player"
  tags = ["v1"]

  build = {
    context = "${path.module}/player"
    args    = { BASE = var.base }
  }
}

# The settings of all containers are now those of the environment.
resource "sandbox_environment" "campaign" {
  name          = "campaign-9"
  type          = "rpg"
  image         = sandbox_container_image.player.reference
  instance_type = "lite" # memory and cpus
  env           = { LEVEL = "1" }

  network = {
    mode = "none" # or restricted, with allowed hosts
  }

  # The former command of the container.
  process = [{
    name    = "game"
    command = ["sh", "-c", "while sleep 60; do date > /workspace/last-turn; done"]
    restart = "always"
  }]
}

# One lease for each former container.
resource "sandbox_lease" "player" {
  for_each = toset(["did:plc:ann", "did:plc:bob"])

  agent_did      = each.key
  environment_id = sandbox_environment.campaign.id
}
