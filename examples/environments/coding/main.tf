# A coding task. task.complete and pr.merged end it; the agents can read the repository and cannot push to it.

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

  name = "sandbox-environments/coding"
  base = var.base
}

resource "sandbox_environment" "task" {
  name          = var.name
  type          = "coding"
  image         = module.image.reference
  instance_type = "standard-1"
  ttl           = "12h"
  # The relay watcher must always listen, but a process is not activity that keeps a sandbox awake.
  sleep_after = "0s"

  # Only the model, the relay and the code host, by TLS or plain HTTP, through a gateway that logs every attempt.
  network = {
    mode          = "restricted"
    allow         = [var.llm.host, var.relay.host, var.git_host]
    private_cidrs = var.private_cidrs
  }

  env = {
    LLM_URL           = var.llm.url
    LLM_MODEL         = var.model
    RELAY_URL         = var.relay.url
    RELAY_DID         = var.relay.did
    RELAY_COLLECTIONS = "task.turn.*"
    RELAY_RECORD_TYPE = "task.result"
    TURN_TIMEOUT      = "900"
  }

  secrets = {
    llm_api_key = {
      value_wo         = var.llm_api_key
      value_wo_version = 1 # raise it when the key changes
    }
  }

  skills = {
    coding-task = file("${path.module}/skills/coding-task.md")
    code-review = file("${path.module}/skills/code-review.md")
  }

  process = [{
    name    = "relay"
    command = ["python3", "/agent/relay_watcher.py"]
    restart = "always"
  }]
}

resource "sandbox_lease" "agent" {
  for_each = var.agents

  environment_id = sandbox_environment.task.id
  agent_did      = each.key
}
