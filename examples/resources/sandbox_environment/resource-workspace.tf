# Each sandbox starts with a repository and a branch of its own. The reconciler fetches the repository, so no sandbox gets
# the token. It was started with --workspace-allow git.example.com.
variable "repository_token" {
  type      = string
  ephemeral = true
}

resource "sandbox_environment" "fix" {
  name  = "coding-fix"
  type  = "coding"
  image = sandbox_container_image.player.reference

  secrets = {
    repository_token = { value_wo = var.repository_token, value_wo_version = 1 }
  }

  workspace = {
    git = {
      url               = "https://git.example.com/team/app.git"
      ref               = "main"
      depth             = 50
      credential_secret = "repository_token"
    }
    branch = "agents/{agent}/{generation}"
    path   = "/workspace/app"
  }

  # It runs with the repository in place.
  post_start = [{
    command = ["test", "-f", "/workspace/app/README.md"]
  }]
}
