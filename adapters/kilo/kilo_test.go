package kilo

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
	"aep-wrap/session"
)

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter:  Adapter(),
		Corpus:   []string{"kilocode.json"},
		Captures: streams,
		Declared: adaptertest.NamedBy("type", "kind", "event.type"),
		Wires: []adaptertest.Wire{
			{Name: "plain", Launch: adaptertest.Launch(nil, nil, "kilo"), Endpoint: adaptertest.Endpoint(Adapter())},
			{Name: "npx", Launch: beside(adaptertest.Launch(nil, []string{"KILO_SERVER_PASSWORD=theirs"}, "npx", "@kilocode/cli", "run", "go")), Endpoint: adaptertest.Endpoint(Adapter())},
		},
	})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), streams(f)) }

func streams(t testing.TB) []adapters.Moment {
	return append(stream(t, "shell-once"), stream(t, "abort-in-tool")...)
}

func stream(t testing.TB, name string) (ms []adapters.Moment) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "streams", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		o, err := event.ParseObject(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range Adapter().Server.Item(o) {
			m.Held = Adapter().Asks(m).Held
			ms = append(ms, m)
		}
	}
	return ms
}

// What the fork's own rows make of its streams, as a session binds them.
func TestStreams(t *testing.T) {
	for name, want := range map[string]string{
		"shell-once":    "session.started run.started tool.requested attention.requested attention.answered attention.resolved tool.completed run.finished",
		"abort-in-tool": "session.started run.started attention.requested attention.answered attention.resolved tool.requested run.cancelled tool.failed",
	} {
		var got []string
		var s *session.Session
		for _, m := range stream(t, name) {
			for _, d := range Adapter().Map(m) {
				if s == nil {
					s = session.New(session.Config{Agent: "kilocode", Host: "h", Session: d.Session, State: session.NewState(), Steer: true})
				}
				for _, b := range s.Bind(time.Time{}, []event.Draft{d}) {
					if !strings.HasPrefix(b.Type, "x.") {
						got = append(got, b.Type)
					}
				}
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s\ngot  %s\nwant %s", name, s, want)
		}
	}
}

// Words of its own start no session: with a port before them they are not
// understood. A worktree's name is none of them.
func TestWords(t *testing.T) {
	for line, want := range map[string]bool{
		"kilo config check": true, "kilo daemon status": true, "kilo roll-call free": true, "kilo --print-logs profile": true,
		"kilo stats": true, "kilo --worktree config": false, "kilo --worktree config daemon": true, "kilo run config": false,
	} {
		w, err := Adapter().Launch.Wire(adaptertest.Launch(nil, nil, strings.Fields(line)...), adaptertest.Endpoint(Adapter()))
		if err != nil || w.Passthrough != want {
			t.Errorf("%s: passed through %v, %v", line, w.Passthrough, err)
		}
	}
}

// beside is a launch that asks for a server of ours.
func beside(l adapters.Launch) adapters.Launch {
	l.Attach = adapters.AttachNew
	return l
}
