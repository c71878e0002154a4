resource "sandbox_container_image" "player" {
  name = "examples/player-under-test"

  build = {
    context = "${path.module}/../../resources/sandbox_container_image/player"
  }
}

resource "sandbox_environment" "ci" {
  name  = "player-ci"
  type  = "coding"
  image = sandbox_container_image.player.reference

  network = {
    mode = "none"
  }
}

# A sandbox for one test run: acquired before the tests, gone after them, in no state.
ephemeral "sandbox_lease" "ci" {
  agent_did      = "did:plc:ci"
  environment_id = sandbox_environment.ci.id
  ttl            = "15m" # ends the lease if Terraform is killed
}

resource "terraform_data" "tests" {
  triggers_replace = sandbox_container_image.player.reference

  provisioner "local-exec" {
    command = "echo \"here the tests run in sandbox $SANDBOX of lease $LEASE\""

    environment = {
      LEASE   = ephemeral.sandbox_lease.ci.id
      SANDBOX = ephemeral.sandbox_lease.ci.sandbox_id
    }
  }
}
