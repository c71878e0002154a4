# Pulled from a registry and pinned: sandboxes run the digest that the tag had at plan.
resource "sandbox_container_image" "base" {
  name = "examples/base"

  source = {
    reference = "busybox:1.36"
    follow    = true # a plan shows when the tag has moved
  }
}
