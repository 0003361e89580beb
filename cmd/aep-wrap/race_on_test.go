//go:build race

package main

// raceDetector says whether this test binary was built with it.
const raceDetector = true
