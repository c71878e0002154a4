package driver

// ContainerHost is implemented by an Executor whose sandboxes are containers with ids of their own.
type ContainerHost interface {
	// ContainerID returns the id that the backend gave to a sandbox's container, "" if this program has not seen the
	// container since it started, or has removed it. It does not ask the backend.
	ContainerID(h Handle) string
}
