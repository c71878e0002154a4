# Agents clone and push over HTTPS without a token: the gateway adds it, outside of every sandbox.
variable "git_token" {
  type      = string
  ephemeral = true
}

resource "sandbox_environment" "repair" {
  name  = "coding-repair"
  type  = "coding"
  image = sandbox_container_image.player.reference

  secrets = {
    git_token = { value_wo = var.git_token, value_wo_version = 1 } # a credential: no sandbox gets it
  }

  network = {
    allow = ["github.com", "api.github.com"]

    credentials = {
      "github.com"     = { secret = "git_token", scheme = "basic", username = "x-access-token" } # git
      "api.github.com" = { secret = "git_token" }                                                # Bearer
    }
  }
}
