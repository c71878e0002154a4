# Files of the host. They need a reconciler that was started with --mount-allow /srv/games.
resource "sandbox_environment" "library" {
  name  = "library-1"
  image = sandbox_container_image.player.reference

  # Every sandbox sees the same directories: one read-only, and one for the logs of its programs.
  mount = [{
    source = "/srv/games/rules"
    target = "/rules"
    }, {
    source   = "/srv/games/logs"
    target   = "/var/log/agents-sandbox"
    writable = true
  }]

  # The owner of /srv/games/logs.
  confinement = {
    user = "20000:20000"
  }

  # Every new sandbox gets a copy.
  copy = [{
    source = "/srv/games/board.json"
    target = "/data/board.json"
  }]
}
