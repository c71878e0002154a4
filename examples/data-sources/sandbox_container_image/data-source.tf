data "sandbox_container_image" "hero" {
  name = "examples/rpg-hero:latest"
}

# Pinned to what the tag points to now: moving it changes nothing before the next plan shows it.
resource "sandbox_environment" "dungeon" {
  name  = "dungeon-4"
  type  = "rpg"
  image = data.sandbox_container_image.hero.reference
}
