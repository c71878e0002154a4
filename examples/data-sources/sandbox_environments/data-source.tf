data "sandbox_environments" "games" {
  status = "open"
}

output "image_of_each_game" {
  value = { for e in data.sandbox_environments.games.environments : e.name => e.image }
}
