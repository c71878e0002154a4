# Built as project/.devcontainer/devcontainer.json says, with its features. Its commands run in each sandbox.
resource "sandbox_container_image" "project" {
  name = "examples/project"

  build = {
    context      = "${path.module}/project"
    devcontainer = ".devcontainer/devcontainer.json"
  }
}

resource "sandbox_environment" "task" {
  name       = "task-17"
  type       = "coding"
  image      = sandbox_container_image.project.reference
  post_start = sandbox_container_image.project.post_start

  network = {
    mode = "none"
  }
}
