terraform {
  required_version = ">= 1.11"
  required_providers {
    sandbox = {
      source = "sandbox-lease/sandbox"
    }
  }
}

# This needs only a Docker Engine: the provider keeps the ledger itself. Estimates use the price book.
provider "sandbox" {
  docker = {
    price_book = "${path.module}/prices.json"
  }
}
