# Built on the Docker engine. A changed file in player/ shows in the plan as a changed context_hash.
resource "sandbox_container_image" "player" {
  name = "examples/player"
  tags = ["latest", "v1"]

  build = {
    context = "${path.module}/player"
    args    = { RULES = "rules.txt" }
    labels  = { "org.opencontainers.image.source" = "https://github.com/sandbox-lease/terraform-provider-sandbox" }
  }
}

output "player" {
  value = sandbox_container_image.player.reference
}
