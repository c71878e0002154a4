# By name and tag. An imported image needs no build. A build that is added later builds the image again
# only if its context has changed since this provider built it.
terraform import sandbox_container_image.player examples/player:latest
