# Sandboxes reach these hosts only, through a gateway that logs every attempt. The data source
# sandbox_events shows the attempts (type = "egress.*").
resource "sandbox_environment" "research" {
  name  = "research-1"
  image = sandbox_container_image.player.reference

  network = {
    allow         = ["api.github.com", "*.wikipedia.org", "model.internal:8080"]
    private_cidrs = ["10.20.0.0/16"] # model.internal may resolve to it
  }

  env         = { MODEL_URL = "http://model.internal:8080" }
  env_blocked = ["GITHUB_TOKEN"] # no command may set it
}
