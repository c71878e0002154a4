variable "github_token" {
  type      = string
  ephemeral = true # it is in no plan and no state
}

# A task of several agents, whose work outlives their sandboxes.
resource "sandbox_environment" "coding" {
  name  = "issue-1024"
  type  = "coding" # its leases end by task.complete and pr.merged
  image = sandbox_container_image.player.reference

  # Each sandbox finds it as the file /run/secrets/github_token.
  secrets = {
    github_token = {
      value_wo         = var.github_token
      value_wo_version = 1 # raise it when the token has changed
    }
  }

  # /data is kept from one sandbox of an agent to the next.
  state = {
    size_limit_mb = 64
  }
  initial_state = { "memory/task.md" = "Fix issue 1024." }
  skills        = { review = "Look for what is missing." }

  confinement = {
    tmp_mb     = 256
    open_files = 4096
  }

  # Run once in each sandbox, before its agent gets it.
  post_start = [{
    command = ["sh", "-c", "mkdir -p /workspace/src"]
    timeout = "30s"
  }]

  # Runs as long as the sandbox does.
  process = [{
    name    = "watcher"
    command = ["sh", "-c", "while sleep 60; do ls /workspace/src > /workspace/files; done"]
    restart = "always"
  }]

  post_mortem = "2h" # a sandbox that failed is kept for so long
}
