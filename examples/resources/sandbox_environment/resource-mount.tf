# Files of the host. They need a reconciler that was started with --mount-allow /srv/games.
resource "sandbox_environment" "library" {
  name  = "library-1"
  image = sandbox_container_image.player.reference

  # Every sandbox sees the same directory, read-only.
  mount = [{
    source = "/srv/games/rules"
    target = "/rules"
  }]

  # Every new sandbox gets a copy.
  copy = [{
    source = "/srv/games/board.json"
    target = "/data/board.json"
  }]
}
