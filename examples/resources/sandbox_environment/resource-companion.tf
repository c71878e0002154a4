# A database beside each sandbox, on 127.0.0.1 of the same network. The lease is ready once the database
# accepts connections, and the database is gone with the sandbox.
variable "database_password" {
  type      = string
  ephemeral = true
}

resource "sandbox_environment" "recording" {
  name  = "catan-recording"
  type  = "catan"
  image = sandbox_container_image.player.reference

  network = {
    mode = "none"
  }

  secrets = {
    database_password = { value_wo = var.database_password, value_wo_version = 1 }
  }

  companions = {
    db = {
      image   = sandbox_container_image.player.reference # such as an image with PostgreSQL, which runs without root
      command = ["serve", "--data", "/data", "--password-file", "/run/secrets/database_password"]
      secrets = ["database_password"]

      resources = {
        memory_mb = 512
        cpus      = 0.5
      }

      health_check = {
        port         = 5432
        start_period = "90s"
      }
      restart = "on_failure"
    }
  }
}
