package main

import (
	"log/slog"
	"math"
	"os"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// heedLimit has the process collect its memory before it takes more than nine
// tenths of what its cgroup allows, unless GOMEMLIMIT says another. What is left
// is for what the runtime does not count, as the pages of the binary.
func heedLimit(log *slog.Logger) {
	limit, err := memlimit.Set(memlimit.WithRatio(0.9))
	switch {
	case err != nil:
		log.Debug("what the cgroup allows is not known", "err", err)
	case limit != math.MaxInt64 && os.Getenv("GOMEMLIMIT") == "":
		log.Info("memory is collected to stay within what the cgroup allows", "limit", limit)
	}
}
