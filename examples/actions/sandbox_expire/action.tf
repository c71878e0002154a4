# Terraform 1.14 or newer: terraform apply -invoke=action.sandbox_expire.finished
action "sandbox_expire" "finished" {
  config {
    environment_id = "catan-7"
    condition      = "game.finished"
    reason         = "the tournament is over"
  }
}
