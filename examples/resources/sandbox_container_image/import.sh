# By name and tag. Its build block can be added afterwards: an image that this provider built is not
# built again as long as its context is the same.
terraform import sandbox_container_image.player examples/player:latest
