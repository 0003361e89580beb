package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
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
			if took := time.Since(start); took > completionWait+10*time.Second {
				t.Errorf("it took %v", took)
			}
			if len(words) > 0 || directive != cobra.ShellCompDirectiveNoFileComp {
				t.Errorf("%q, %v", words, directive)
			}
		})
	}
}

// A shell shows what it is offered as it stands.
func TestCompletionOffersWhatCanBeSeen(t *testing.T) {
	words := []string{"plain", beside("a b", "x"), beside("日本", "y\x1b[31m"), "es\x1b[31m", "bell\a", "c1\u009b", "bidi\u202e", "two\nlines", "-rf", beside("--help", "x"), "\xff"}
	if got := strings.Join(begins(words, ""), "|"); got != "a b\tx|plain|日本\ty\\x1b[31m" {
		t.Errorf("%q", got)
	}
}

// A collector that does not answer is none of which a session is said to be
// missing.
func TestTimelineOfASilentCollector(t *testing.T) {
	a := quietApp(t)
	socket := a.paths.collectorSocket(a.Getenv)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := a.findStory(t.Context(), "s"); err == nil || !strings.Contains(err.Error(), "none at the collector") {
		t.Errorf("without one: %v", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := a.findStory(ctx, "s"); err == nil || !strings.Contains(err.Error(), "the collector cannot be asked") {
		t.Errorf("of a silent one: %v", err)
	}
}
