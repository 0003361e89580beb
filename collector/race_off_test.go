//go:build !race

package collector

const raceDetector = false
