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

variable "image" {
  type    = string
  default = "busybox:1.36"
}

variable "run" {
  type        = string
  description = "Tells this run from concurrent ones, such as the number of the pipeline."
  default     = "0"
}

resource "sandbox_environment" "tests" {
  name  = "player-tests"
  type  = "coding"
  image = var.image

  image_pull = "missing" # the reconciler's engine pulls it

  network = {
    mode = "none"
  }
}

data "sandbox_drift" "open" {
  status = "open"
}

# Acquired before the tests, released after them, in no state.
ephemeral "sandbox_lease" "run" {
  agent_did      = "did:web:ci.example.com:run-${var.run}"
  environment_id = sandbox_environment.tests.id
  ttl            = "15m" # ends the lease if Terraform is killed
}

resource "terraform_data" "tests" {
  triggers_replace = var.run

  provisioner "local-exec" {
    command = "sandbox exec \"$LEASE\" -- sh -c 'echo the tests run in $(pwd)' > report.txt"

    environment = {
      LEASE = ephemeral.sandbox_lease.run.id
    }
  }
}
