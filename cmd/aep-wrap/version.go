package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"aep-wrap/event"
)

// version is set by the linker for a release; a build from a tagged module
// carries its own.
var version = ""

// buildInfo is what this binary was built from.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	AEP      string `json:"aep"`
}

func readBuildInfo() buildInfo {
	b := buildInfo{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, AEP: event.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func newVersionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print the version and what it was built from",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{noConfig: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := readBuildInfo()
			// A configuration that cannot be read is no reason not to say the version.
			cfg, err := loadConfig(cmd.Flags(), a.Getenv, a.paths)
			if cfg.JSON || err != nil && cmd.Flag("json").Value.String() == "true" {
				return json.NewEncoder(a.Stdout).Encode(b)
			}
			_, err = fmt.Fprintln(a.Stdout, b)
			return err
		},
	}
}

// String is the build on one line.
func (b buildInfo) String() string {
	revision := ""
	if b.Revision != "" {
		revision = " " + b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			revision += "+changes"
		}
	}
	return fmt.Sprintf("aep-wrap %s%s (AEP %s, %s, %s)", b.Version, revision, b.AEP, b.Go, b.Platform)
}
