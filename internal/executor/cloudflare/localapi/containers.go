package localapi

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// application is a container application.
type application struct {
	ID               string         `json:"id"`
	CreatedAt        time.Time      `json:"created_at"`
	AccountID        string         `json:"account_id"`
	Name             string         `json:"name"`
	Version          int64          `json:"version"`
	SchedulingPolicy string         `json:"scheduling_policy"`
	Instances        int            `json:"instances"`
	MaxInstances     int            `json:"max_instances"`
	Configuration    configuration  `json:"configuration"`
	Constraints      map[string]any `json:"constraints,omitempty"`
	DurableObjects   struct {
		NamespaceID string `json:"namespace_id"`
	} `json:"durable_objects"`
	RolloutGracePeriod int64 `json:"rollout_active_grace_period"`

	rollouts []map[string]any
}

// configuration is returned with figures, even if it was requested by name.
type configuration struct {
	Image        string  `json:"image"`
	InstanceType string  `json:"instance_type,omitempty"`
	VCPU         float64 `json:"vcpu"`
	MemoryMiB    int64   `json:"memory_mib"`
	Disk         struct {
		SizeMB int64 `json:"size_mb"`
	} `json:"disk"`
}

// maxGracePeriod is in seconds (cc_ApplicationRolloutActiveGracePeriod of github.com/cloudflare/api-schemas, read
// 2026-11).
const (
	maxGracePeriod     = 604_800
	gracePeriodTooLong = "VALIDATE_INPUT: rollout_active_grace_period must be at most 604800"
)

// liteVCPU is the share of a CPU of lite, the only size where it is not a whole number of thousandths.
const liteVCPU = 0.0625

func (c configuration) inFigures() configuration {
	if r, named := sandbox.ResourcesOf(c.InstanceType); named {
		c.VCPU, c.MemoryMiB, c.Disk.SizeMB = float64(r.CPUMillis)/1000, r.MemoryMB, r.DiskMB
		if c.InstanceType == "lite" {
			c.VCPU = liteVCPU
		}
		c.InstanceType = ""
	}
	return c
}

func (s *Server) routeContainers() {
	s.handle("GET /containers/me", func(r *http.Request, _ []byte) answer {
		return ok(map[string]any{
			"external_account_id": r.PathValue("account"),
			"limits": map[string]any{
				"disk_mb_per_deployment":    20000,
				"memory_mib_per_deployment": 12288,
				"vcpu_per_deployment":       4,
			},
		})
	})
	s.handle("POST /containers/image-preparations", s.prepareImage)
	s.handle("GET /containers/applications", func(*http.Request, []byte) answer {
		all := []*application{}
		for _, a := range s.applications {
			all = append(all, a)
		}
		slices.SortFunc(all, func(a, b *application) int { return a.CreatedAt.Compare(b.CreatedAt) })
		return ok(all)
	})
	s.handle("POST /containers/applications", s.makeApplication)
	s.onApplication("GET /containers/applications/{id}",
		func(a *application, _ *http.Request, _ []byte) answer { return ok(a) })
	s.onApplication("PATCH /containers/applications/{id}", s.changeApplication)
	s.onApplication("DELETE /containers/applications/{id}", func(a *application, _ *http.Request, _ []byte) answer {
		delete(s.applications, a.ID)
		return ok(map[string]any{})
	})
	s.onApplication("GET /containers/applications/{id}/rollouts",
		func(a *application, _ *http.Request, _ []byte) answer { return ok(a.rollouts) })
	s.onApplication("POST /containers/applications/{id}/rollouts", s.beginRollout)
}

func (s *Server) onApplication(pattern string, answerTo func(*application, *http.Request, []byte) answer) {
	s.handle(pattern, func(r *http.Request, body []byte) answer {
		a, there := s.applications[r.PathValue("id")]
		if !there {
			return failed(http.StatusNotFound, 1000, "APPLICATION_NOT_FOUND")
		}
		return answerTo(a, r, body)
	})
}

func (s *Server) makeApplication(r *http.Request, body []byte) answer {
	made := &application{
		ID:        newUUID(),
		CreatedAt: s.cfg.Now(),
		AccountID: r.PathValue("account"),
		Version:   1,
		rollouts:  []map[string]any{},
	}
	if a := read(body, made); a != nil {
		return *a
	}
	owner, enabled := s.ownerOf(made.DurableObjects.NamespaceID)
	taken := false
	for _, other := range s.applications {
		taken = taken || other.DurableObjects.NamespaceID == made.DurableObjects.NamespaceID
	}
	if made.SchedulingPolicy == policyDurableObject {
		return s.makeByDurableObject(r, body, made, owner, enabled, taken)
	}
	switch {
	case made.Name == "" || !strings.Contains(made.Configuration.Image, "@sha256:"):
		return failed(http.StatusBadRequest, 1000, "VALIDATE_INPUT: name and configuration.image must be set")
	case made.RolloutGracePeriod > maxGracePeriod:
		return failed(http.StatusBadRequest, 1000, gracePeriodTooLong)
	case owner == nil || !enabled:
		return failed(http.StatusBadRequest, 1000, "DURABLE_OBJECT_NOT_CONTAINER_ENABLED")
	case taken:
		return failed(http.StatusBadRequest, 1000, "DURABLE_OBJECT_ALREADY_HAS_APPLICATION")
	}
	made.Configuration = made.Configuration.inFigures()
	if a := made.Configuration.checkSize(made.MaxInstances); a != nil {
		return *a
	}
	s.applications[made.ID] = made
	if a := s.run(r, owner); a != nil {
		delete(s.applications, made.ID)
		return *a
	}
	return answer{status: http.StatusCreated, result: made}
}

func (s *Server) changeApplication(a *application, r *http.Request, body []byte) answer {
	var change struct {
		SchedulingPolicy   *string        `json:"scheduling_policy"`
		Configuration      *configuration `json:"configuration"`
		MaxInstances       *int           `json:"max_instances"`
		RolloutGracePeriod *int64         `json:"rollout_active_grace_period"`
	}
	if refused := read(body, &change); refused != nil {
		return *refused
	}
	if policy := change.SchedulingPolicy; policy != nil && *policy != a.SchedulingPolicy {
		return failed(http.StatusBadRequest, 1000, "VALIDATE_INPUT: scheduling_policy cannot be changed")
	}
	if a.SchedulingPolicy == policyDurableObject {
		return failed(http.StatusBadRequest, 1000, "VALIDATE_INPUT: the durable_object policy has no settings")
	}
	configured, most := a.Configuration, a.MaxInstances
	if change.Configuration != nil {
		configured = change.Configuration.inFigures()
	}
	if change.MaxInstances != nil {
		most = *change.MaxInstances
	}
	if refused := configured.checkSize(most); refused != nil {
		return *refused
	}
	a.Configuration, a.MaxInstances = configured, most
	if grace := change.RolloutGracePeriod; grace != nil && *grace > maxGracePeriod {
		return failed(http.StatusBadRequest, 1000, gracePeriodTooLong)
	}
	if change.RolloutGracePeriod != nil {
		a.RolloutGracePeriod = *change.RolloutGracePeriod
	}
	a.Version++
	if owner, _ := s.ownerOf(a.DurableObjects.NamespaceID); owner != nil {
		if refused := s.run(r, owner); refused != nil {
			return *refused
		}
	}
	return ok(a)
}

func (s *Server) beginRollout(a *application, _ *http.Request, body []byte) answer {
	if a.SchedulingPolicy == policyDurableObject {
		return failed(http.StatusBadRequest, 1000, "VALIDATE_INPUT: the durable_object policy has no rollouts")
	}
	var begun map[string]any
	if refused := read(body, &begun); refused != nil {
		return *refused
	}
	begun["id"], begun["created_at"], begun["status"] = newUUID(), s.cfg.Now(), "progressing"
	a.rollouts = append(a.rollouts, begun)
	return ok(begun)
}
