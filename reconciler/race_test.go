//go:build race

package reconciler_test

// raceMemory is how many times more memory a program may use with the race detector. A program that held a file of 95
// MiB in memory used 1.2 GiB.
const raceMemory = 8
