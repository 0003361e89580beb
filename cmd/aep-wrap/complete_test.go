package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// A shell waits for no collector that does not answer.
func TestCompletionIsOverInTime(t *testing.T) {
	for name, of := range map[string]func(*app) cobra.CompletionFunc{
		"target":  func(a *app) cobra.CompletionFunc { return a.completeTarget },
		"request": func(a *app) cobra.CompletionFunc { return a.completeRequest },
		"option":  func(a *app) cobra.CompletionFunc { return a.completeOption },
		"run":     func(a *app) cobra.CompletionFunc { return a.completeRun },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := quietApp(t)
			socket := a.paths.collectorSocket(a.Getenv)
			if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			start := time.Now()
			words, directive := of(a)(newRootCmd(a), nil, "")
			if took := time.Since(start); took > completionWait+2*time.Second {
				t.Errorf("it took %v", took)
			}
			if len(words) > 0 || directive != cobra.ShellCompDirectiveNoFileComp {
				t.Errorf("%q, %v", words, directive)
			}
		})
	}
}
