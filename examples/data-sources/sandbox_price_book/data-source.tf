data "sandbox_price_book" "docker" {}

output "usd_for_an_hour_of_one_cpu" {
  value = 3600 * tonumber(data.sandbox_price_book.docker.cpu_second_usd)
}
