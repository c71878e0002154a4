data "sandbox_container_image" "hero" {
  name = "examples/rpg-hero:latest"
}

# Pinned to the image that the tag points to now. If the tag moves, the next plan shows the change.
resource "sandbox_environment" "dungeon" {
  name  = "dungeon-4"
  type  = "rpg"
  image = data.sandbox_container_image.hero.reference
}
