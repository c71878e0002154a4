//go:build !race

package reconciler_test

// raceMemory is 1 without the race detector.
const raceMemory = 1
