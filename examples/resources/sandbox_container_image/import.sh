# By name and tag. An imported image needs no build. A build that is added later builds the image again
# only if its context has changed since this provider built it.
# An image that this provider did not build is imported without its copy in a registry: push is false, and
# a destroy removes it from the engine only.
terraform import sandbox_container_image.player examples/player:latest
