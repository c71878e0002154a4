variable "registry_token" {
  type      = string
  ephemeral = true # it is in no plan and no state
}

# Built here and pushed, so that other engines can pull it. The registry keeps the newest 10 tags.
resource "sandbox_container_image" "pushed" {
  name       = "registry.example.com/games/player"
  tags       = ["latest", "v2"]
  push       = true
  keep_tags  = 10
  on_destroy = "keep"

  build = {
    context = "${path.module}/player"
  }

  registry_auth = [{
    username            = "games"
    password_wo         = var.registry_token
    password_wo_version = 1 # raise it to push again with a new token
  }]
}
