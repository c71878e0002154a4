# Environments with backend = "cloudflare" run on this account, without a reconciler. The API token comes
# from CLOUDFLARE_API_TOKEN.
provider "sandbox" {
  alias = "edge"

  cloudflare = {
    account_id        = "0123456789abcdef0123456789abcdef"
    scheduling_policy = "durable_object"
  }
}
