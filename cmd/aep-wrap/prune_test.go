package main

import (
	"math"
	"testing"
	"time"
)

func TestAges(t *testing.T) {
	const day = 24 * time.Hour
	for v, want := range map[string]time.Duration{
		"0": 0, "0d": 0, "30d": 30 * day, "12h": 12 * time.Hour, "2w": 14 * day, "1y": 365 * day, "1d12h": 36 * time.Hour,
		"1.5h": 90 * time.Minute, "90m": 90 * time.Minute, "90min": 90 * time.Minute, " 30 D ": 30 * day, "45s": 45 * time.Second, "4w2d": 30 * day,
	} {
		if got, err := parseAge(v); err != nil || got != want {
			t.Errorf("%q: %v, want %v: %v", v, got, want, err)
		}
	}
	for _, v := range []string{"", " ", "30", "d", "-1d", "30x", "1d-", "1..5h", "999999y", "1e3d", "NaN", "Infs"} {
		if got, err := parseAge(v); err == nil {
			t.Errorf("%q is %v", v, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for v, want := range map[string]int64{
		"0": 0, "0GB": 0, "1024": 1024, "1B": 1, "500MB": 500e6, "500 mb": 500e6, "2GiB": 2 << 30, "2gib": 2 << 30, "2G": 2 << 30, "1.5G": 3 << 29,
		"10k": 10 << 10, "1TB": 1e12, "0.6kB": 600,
	} {
		if got, err := parseSize(v); err != nil || got != want {
			t.Errorf("%q: %d, want %d: %v", v, got, want, err)
		}
	}
	for _, v := range []string{"", "MB", "-1MB", "10 bananas", "10MBs", "1MB2", "0.1", "99999999TB", "NaN", "0x10"} {
		if got, err := parseSize(v); err == nil {
			t.Errorf("%q is %d", v, got)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1<<20 - 1: "1.0 MiB", 2 << 30: "2.0 GiB", math.MaxInt64: "8388608.0 TiB"} {
		if got := bytesOf(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
