terraform {
  required_version = ">= 1.11"
  required_providers {
    sandbox = {
      source  = "sandbox-lease/sandbox"
      version = "~> 0.1"
    }
  }
}

provider "sandbox" {}

variable "image" {
  type    = string
  default = "busybox:1.36"
}

resource "sandbox_environment" "game" {
  name  = "long-campaign"
  type  = "rpg"
  image = var.image

  image_pull = "missing"

  network = {
    mode = "none"
  }
}

resource "sandbox_lease" "kira" {
  agent_did      = "did:plc:kira"
  environment_id = sandbox_environment.game.id
}
