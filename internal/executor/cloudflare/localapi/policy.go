package localapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// policyDurableObject lets each start of a container choose its image and size
// (developers.cloudflare.com/containers/configuration/scheduling-policy, read 2026-11).
const policyDurableObject = "durable_object"

// Limits of the map of images, from the same page.
const (
	maxImages    = 100
	maxImageName = 128
)

var pinned = regexp.MustCompile(`^[^/]+/([0-9a-f]{32}/[a-z0-9._/-]+)@(sha256:[0-9a-f]{64})$`)

// makeByDurableObject creates an application of policy durable_object. It has only a name and a namespace, and the
// namespace's id is also its id.
func (s *Server) makeByDurableObject(
	r *http.Request, body []byte, made *application, owner *script, enabled, taken bool,
) answer {
	fields := json.NewDecoder(bytes.NewReader(body))
	fields.DisallowUnknownFields()
	var allowed struct {
		Name             string `json:"name"`
		SchedulingPolicy string `json:"scheduling_policy"`
		DurableObjects   struct {
			NamespaceID string `json:"namespace_id"`
		} `json:"durable_objects"`
	}
	switch err := fields.Decode(&allowed); {
	case err != nil:
		return failed(http.StatusBadRequest, 1000, "VALIDATE_INPUT: the durable_object policy takes no more: "+err.Error())
	case made.Name == "":
		return failed(http.StatusBadRequest, 1000, "VALIDATE_INPUT: name must be set")
	case owner == nil || !enabled:
		return failed(http.StatusBadRequest, 1000, "DURABLE_OBJECT_NOT_CONTAINER_ENABLED")
	case taken:
		return failed(http.StatusBadRequest, 1000, "DURABLE_OBJECT_ALREADY_HAS_APPLICATION")
	}
	made.ID = made.DurableObjects.NamespaceID
	s.applications[made.ID] = made
	if a := s.run(r, owner); a != nil {
		delete(s.applications, made.ID)
		return *a
	}
	return answer{status: http.StatusCreated, result: made}
}

// images returns the images that containers of a Worker may be started with, by name.
func (w *script) images() map[string]string {
	all := map[string]string{}
	for _, c := range w.metadata.Containers {
		for name, reference := range c.Images {
			all[name] = reference
		}
	}
	return all
}

// checkImages refuses images that no start could use: images must be pinned, prepared and in the account's registry.
func (s *Server) checkImages(r *http.Request, m metadata) *answer {
	refuse := func(format string, args ...any) *answer {
		a := failed(http.StatusBadRequest, 10021, fmt.Sprintf(format, args...))
		return &a
	}
	for _, c := range m.Containers {
		if len(c.Images) > maxImages {
			return refuse("containers.images must contain at most %d images, not %d", maxImages, len(c.Images))
		}
		for name, reference := range c.Images {
			if name == "" || len(name) > maxImageName {
				return refuse("containers.images: names must be between 1 and %d characters", maxImageName)
			}
			if why := s.refuseImage(r, reference); why != "" {
				return refuse("containers.images.%s: %s", name, why)
			}
			if !s.prepared[reference] {
				return refuse("containers.images.%s: image %s is not prepared", name, reference)
			}
		}
	}
	return nil
}

// refuseImage returns why an image cannot be started, "" if it can.
func (s *Server) refuseImage(r *http.Request, reference string) string {
	parts := pinned.FindStringSubmatch(reference)
	if parts == nil || !strings.HasPrefix(parts[1], r.PathValue("account")+"/") {
		return "must be an image of the account's registry with a digest"
	}
	if s.cfg.Runtime == nil { // nothing is started, and the registry may be empty
		return ""
	}
	if s.images.ask(http.MethodHead, "/v2/"+parts[1]+"/manifests/"+parts[2]).Code != http.StatusOK {
		return "IMAGE_NOT_FOUND"
	}
	return ""
}

// prepareImage prepares an image for starts.
func (s *Server) prepareImage(r *http.Request, body []byte) answer {
	var asked struct {
		Image string `json:"image"`
	}
	if refused := read(body, &asked); refused != nil {
		return *refused
	}
	if why := s.refuseImage(r, asked.Image); why != "" {
		return failed(http.StatusBadRequest, 1000, "VALIDATE_INPUT: "+why)
	}
	s.prepared[asked.Image] = true
	return ok(map[string]string{"image": asked.Image, "status": "ready"})
}

// StartImages returns the names of the images that the containers of a Worker may be started with, in order.
func (s *Server) StartImages(worker string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.scripts[worker]
	if w == nil {
		return nil
	}
	var names []string
	for name := range w.images() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
