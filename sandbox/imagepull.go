package sandbox

import "fmt"

// ImagePull says whether the backend's engine fetches images that it does not have.
type ImagePull string

// PullNever is the default: an image that the engine does not have is an error. PullMissing pulls such an image, and
// those of companions, from its registry when the environment is created or changed. A tag is not pulled again when it
// moves.
const (
	PullNever   ImagePull = "never"
	PullMissing ImagePull = "missing"
)

func (p ImagePull) fields() []Field {
	if p != PullNever && p != PullMissing {
		return []Field{{"image_pull", fmt.Sprintf("must be never or missing, not %q", p)}}
	}
	return nil
}

// Images returns the images of the environment's containers: that of the sandboxes, then those of companions by name.
func (s EnvironmentSpec) Images() []string {
	images := []string{s.Image}
	for _, name := range s.Companions.Names() {
		images = append(images, s.Companions[name].Image)
	}
	return images
}
