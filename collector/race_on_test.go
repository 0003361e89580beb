//go:build race

package collector

// raceDetector says whether this test binary was built with it.
const raceDetector = true
