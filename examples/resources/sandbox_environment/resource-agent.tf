# Agents that run as long as their sandboxes, and answer requests. A request wakes the sandbox.
resource "sandbox_environment" "answering" {
  name        = "catan-answering"
  type        = "catan"
  image       = sandbox_container_image.player.reference
  sleep_after = "10m"

  network = {
    mode = "none"
  }

  process = [{
    name    = "chat"
    command = ["/chat"] # a program of the image that serves HTTP on this port
    restart = "always"

    endpoint = {
      port        = 8080
      description = "Answers messages."
    }
  }]
}
