package executortest

import (
	"flag"
	"runtime"
	"strconv"
)

// Overlap makes the tests of a package run twice as many at the same time as there are cores, for TestMain of a real
// backend: its tests wait for sandboxes half of the time. The flag -parallel still has the last word.
func Overlap() {
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err) // TestMain runs once the flags of tests exist
	}
}
