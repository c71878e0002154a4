//go:build !race

package reconciler_test

// raceMemory is one without the race detector.
const raceMemory = 1
