// Package companions starts the programs of companions, waits until they are healthy, and records what becomes of them.
//
// The executor creates a companion's container with the sandbox, and puts it to sleep, wakes and kills it with the
// sandbox. This package runs the program in it:
//
//	the lease begins       all programs start together, before processes and post-start commands. One that does not
//	                       become healthy fails the lease
//	the sandbox wakes      after a stop the programs start again, before the sandbox is used. One that fails is failed,
//	                       and the lease continues
//	a program ends         the container stops with it, which the next look at the sandbox shows: an event and a state.
//	                       With restart on_failure it starts again, after a pause that grows
//	its checks fail        it is unhealthy after three in a row: an event and a state. With restart on_failure it is
//	                       stopped and starts again, after a pause that grows (health.go)
//	a container is removed it is failed, and the drift is a finding
//
// A repeated step follows a program that runs already, because its id is constant.
package companions
