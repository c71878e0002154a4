# The same resource under its short name. Terraform takes the provider from the first word of a
# resource's type, so every block of this one must name it.
resource "container_image" "player" {
  provider = sandbox

  name = "examples/short-player"

  build = {
    context = "${path.module}/../sandbox_container_image/player"
  }
}
