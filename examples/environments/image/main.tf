# Builds the image that the environments share. Each gives it a name of its own, so that one can be destroyed
# while the others stay; the engine has its layers once.

terraform {
  required_providers {
    sandbox = {
      source = "sandbox-lease/sandbox"
    }
  }
}

variable "name" {
  description = "Name of the image on the engine, without tag."
  type        = string
}

variable "base" {
  description = "Image to build on: Debian, where what is missing of the needed packages is installed."
  type        = string
}

resource "sandbox_container_image" "agent" {
  name = var.name

  build {
    context = path.module
    args    = { BASE = var.base }
  }
}

output "reference" {
  description = "Always this very image."
  value       = sandbox_container_image.agent.reference
}
