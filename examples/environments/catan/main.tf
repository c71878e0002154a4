# A game of Catan. game.finished ends the leases of all players.

terraform {
  required_version = ">= 1.11"
  required_providers {
    sandbox = {
      source = "sandbox-lease/sandbox"
    }
  }
}

# SANDBOX_RECONCILER_URL and SANDBOX_RECONCILER_TOKEN select the reconciler.
provider "sandbox" {}

module "image" {
  source = "../image"

  name = "sandbox-environments/catan"
  base = var.base
}

resource "sandbox_environment" "game" {
  name          = var.name
  type          = "catan"
  image         = module.image.reference
  instance_type = "basic"
  ttl           = "12h"
  # The relay watcher must always listen, but a process is not activity that keeps a sandbox awake.
  sleep_after = "0s"

  # Only the relay, by TLS or plain HTTP, through a gateway that logs every attempt.
  network = {
    mode          = "restricted"
    allow         = [var.relay.host]
    private_cidrs = var.private_cidrs
  }

  env = {
    MODEL             = var.model
    RELAY_URL         = var.relay.url
    RELAY_DID         = var.relay.did
    RELAY_COLLECTIONS = "game.turn.*,env.state.*"
    RELAY_RECORD_TYPE = "game.action"
  }

  # Agents call the model by this route. The gateway adds the key, which no sandbox has, and counts tokens and cost.
  llm = {
    main = {
      api        = var.llm.api
      upstream   = var.llm.upstream
      credential = "llm_api_key"
      models = {
        (var.model) = {
          input_usd_per_million  = var.llm.input_usd_per_million
          output_usd_per_million = var.llm.output_usd_per_million
        }
      }
    }
  }

  secrets = {
    llm_api_key = {
      value_wo         = var.llm_api_key
      value_wo_version = 1 # raise it when the key changes
    }
  }

  skills = {
    catan = file("${path.module}/skills/catan.md") # named as the type: the prompt of each turn
  }

  process = [{
    name    = "relay"
    command = ["python3", "/harness/relay_watcher.py"]
    restart = "always"
  }]
}

resource "sandbox_lease" "agent" {
  for_each = var.agents

  environment_id = sandbox_environment.game.id
  agent_did      = each.key
}
