package control

import (
	"slices"
	"strings"
	"testing"
)

func TestAccepts(t *testing.T) {
	all := Can{Vendor: "demo", Respond: true, Process: true, Instruct: true, More: []string{"x.demo.control.rewind"}}
	watched := Can{Vendor: "demo"}
	for _, tc := range []struct {
		name        string
		can         Can
		allow, deny string
		want        string
		notes       int
	}{
		{"all but instruct", all, "", "", "respond cancel pause resume rewind", 0},
		{"instruct is opt-in", all, "instruct", "", "respond cancel pause resume instruct rewind", 0},
		{"a whole type", all, "x.demo.control.instruct", "control.pause", "respond cancel resume instruct rewind", 0},
		{"deny", all, "", "cancel respond", "pause resume rewind", 0},
		{"deny wins", all, "cancel", "cancel", "respond pause resume rewind", 0},
		{"the least", all, "respond", "*", "respond", 0},
		{"nothing", all, "", "*", "", 0},
		{"* is no opt-in", all, "*", "", "respond cancel pause resume rewind", 0},
		{"nothing can be done", watched, "", "", "", 0},
		{"never what cannot be done", watched, "instruct respond", "", "", 2},
		{"a process without hooks", Can{Vendor: "demo", Process: true}, "instruct", "", "cancel pause resume", 1},
		{"an adapter's own instruct", Can{Vendor: "demo", More: []string{"x.demo.control.instruct", "control.cancel"}}, "", "", "cancel", 0},
	} {
		got, notes, err := Accepts(tc.can, strings.Fields(tc.allow), strings.Fields(tc.deny))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var names []string
		for _, g := range got {
			names = append(names, strings.TrimPrefix(verb(g), "attention."))
		}
		if strings.Join(names, " ") != tc.want || len(notes) != tc.notes {
			t.Errorf("%s: %v, notes %q; want %s", tc.name, names, notes, tc.want)
		}
	}
	if _, _, err := Accepts(all, []string{"fly"}, nil); err == nil || !strings.Contains(err.Error(), "rewind") {
		t.Errorf("an unknown verb: %v", err)
	}
}

func TestResolve(t *testing.T) {
	ids := []string{"01ABC", "01ABD", "s_1", "s_12", "Q"}
	for _, tc := range []struct{ in, want, err string }{
		{"01ABC", "01ABC", ""},
		{"01abc", "01ABC", ""},
		{"s_1", "s_1", ""},
		{"s_12", "s_12", ""},
		{"q", "Q", ""},
		{"01A", "", "01ABC, 01ABD"},
		{"s_", "", "s_1, s_12"},
		{"zz", "", "nothing begins"},
		{"01ABCD", "", "nothing begins"},
		{"", "", "missing"},
	} {
		got, err := Resolve(tc.in, ids)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q: %q, %v", tc.in, got, err)
		}
	}
	if _, err := Resolve("a", []string{"a1", "a2", "a3", "a4", "a5", "a6", "a7"}); err == nil || !strings.Contains(err.Error(), "and 2 more") {
		t.Errorf("many: %v", err)
	}
	if got, err := Resolve("a", slices.Repeat([]string{"ab"}, 2)); got != "ab" || err != nil {
		t.Errorf("one id twice: %q, %v", got, err)
	}
}
