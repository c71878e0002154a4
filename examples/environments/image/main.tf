# Builds the image that the environments share. Each environment uses its own name for it, so that destroying one
# keeps the others. The engine stores the layers once.

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

  build = {
    context = path.module
    args    = { BASE = var.base }
  }
}

output "reference" {
  description = "Always this very image."
  value       = sandbox_container_image.agent.reference
}
