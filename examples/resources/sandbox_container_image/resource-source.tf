# Pulled from a registry and pinned to the digest that the tag has at plan. If the tag moves before the apply, the
# apply fails: plan again.
resource "sandbox_container_image" "base" {
  name = "examples/base"

  source = {
    reference = "busybox:1.36"
    follow    = true # a plan shows when the tag has moved
  }
}
