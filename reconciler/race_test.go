//go:build race

package reconciler_test

// raceMemory is how many times as much memory the race detector lets a program hold: a file of 95 MiB that
// was held whole took 1.2 GiB.
const raceMemory = 8
