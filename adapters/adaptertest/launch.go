package adaptertest

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
	"aep-wrap/session"
)

// The words that the adapters' own tests are written in.

// Moment is a moment of session "s" with this payload.
func Moment(t testing.TB, c adapters.Channel, name, raw string) adapters.Moment {
	t.Helper()
	p, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return adapters.Moment{Channel: c, Name: name, Payload: p, Raw: []byte(raw), Session: "s"}
}

// Story is what a runtime's channels tell in order, and what is told of it.
type Story struct {
	Name    string
	Moments []adapters.Moment
	Want    string // what Show says of each event, with "; " between
}

// Stories takes each story's moments, a second apart, to a session of its own.
// show says an event in a few words; place gives the place of an event by its
// id, from 0.
func Stories(t *testing.T, a adapters.Adapter, show func(d event.Draft, place map[string]int) string, stories []Story) {
	for _, s := range stories {
		t.Run(s.Name, func(t *testing.T) {
			on := session.New(session.Config{Agent: a.Name, Host: "h", Session: "s", State: session.NewState()})
			var got []string
			place := map[string]int{}
			for i, m := range s.Moments {
				for _, d := range on.Bind(at.Add(time.Duration(i)*time.Second), a.Map(m)) {
					got = append(got, strings.TrimSpace(show(d, place)))
					place[d.ID] = len(place)
				}
			}
			if told := strings.Join(got, "; "); told != s.Want {
				t.Errorf("got  %s\nwant %s", told, s.Want)
			}
		})
	}
}

// Said is an event's type and the words of its answer, of who did it and of its
// resolution.
func Said(d event.Draft, _ map[string]int) string {
	return strings.Join(slices.DeleteFunc([]string{d.Type, d.Fields.Str("answer", "option"), d.Fields.Str("by"), d.Fields.Str("resolution")},
		func(s string) bool { return s == "" }), " ")
}

// Detects holds command lines to whether they start the runtime.
func Detects(t *testing.T, a adapters.Adapter, lines map[string]bool) {
	for line, want := range lines {
		if got := a.Launch.Detect(adapters.Launch{Args: strings.Fields(line)}); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// Launched is a command line of the user who has these files, and what becomes
// of it: "passthrough", a word that how has for its wiring, or words of a note.
type Launched struct {
	Name, Line string
	Files      map[string]string
	Env        []string
	Want       string
	Stdout     adapters.Channel
}

// Launches holds launches to what they become. how names a wiring, "" for one
// that installs nothing.
func Launches(t *testing.T, a adapters.Adapter, how func(adapters.Launch, adapters.Wiring) string, launches []Launched) {
	for _, l := range launches {
		t.Run(l.Name, func(t *testing.T) {
			launch := Launch(l.Files, l.Env, strings.Fields(l.Line)...)
			w, err := a.Launch.Wire(launch, Endpoint(a))
			if err != nil {
				t.Fatal(err)
			}
			got := how(launch, w)
			switch {
			case w.Passthrough:
				got = "passthrough"
			case got == "":
				got = strings.Join(w.Notes, "\n")
			}
			if !strings.Contains(got, l.Want) || w.Stdout != l.Stdout {
				t.Errorf("%s (stdout %q); want %s (stdout %q)", got, w.Stdout, l.Want, l.Stdout)
			}
			if got != l.Want && (len(w.Files) > 0 || len(w.SetEnv) > 0) {
				t.Errorf("something is installed all the same: %v", w.SetEnv)
			}
		})
	}
	t.Run("nowhere to report to", func(t *testing.T) {
		words := []string{a.Command[0]}
		w, err := a.Launch.Wire(Launch(nil, nil, words...), adapters.Endpoint{})
		if err != nil || !slices.Equal(w.Args, words) || len(w.Notes) != 1 || len(w.Overlays) > 0 {
			t.Errorf("%v: %+v", err, w)
		}
	})
}

// FuzzWire takes any words after the command, and any text as the file that the
// wiring reads: the words are there afterwards in their order, after at most
// some of ours; files named as JSON are. check, where it is not nil, looks at
// what else must hold.
func FuzzWire(f *testing.F, a adapters.Adapter, file string, env []string, atMost int, check func(t *testing.T, w adapters.Wiring, content string)) {
	for _, seed := range [][2]string{
		{"-p\x00hi", "{}"}, {"exec\x00--json\x00go", "a = 1\n[b]\nhooks = 2"}, {"--\x00mcp", `{"hooks":{"Stop":7}}`},
		{"-c\x00hooks.Stop=[]\x00--\x00mcp", ""}, {"-e\x00a\x00--\x00mcp", `{"hooksConfig":7,"tools":[]}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, line, content string) {
		args := append([]string{a.Command[0]}, strings.Split(line, "\x00")...)
		w, err := a.Launch.Wire(Held(Launch(map[string]string{file: content}, env, args...)), Endpoint(a))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(w.Args) - len(args); n < 0 || n > atMost || !slices.Equal(w.Args[1+n:], args[1:]) {
			t.Fatalf("%q became %q", args, w.Args)
		}
		for name, b := range w.Files {
			if path.Ext(name) == ".json" && !json.Valid(b) {
				t.Fatalf("%s: %s", name, b)
			}
		}
		if check != nil {
			check(t, w, content)
		}
	})
}
