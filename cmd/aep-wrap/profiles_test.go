package main

import (
	"slices"
	"strings"
	"testing"

	"aep-wrap/execution"
)

// Whatever a file of profiles is, it is refused with its name, or every profile
// in it makes a command whose words are its own but for what is put in.
func FuzzProfiles(f *testing.F) {
	for _, s := range []string{
		"profiles:\n  a:\n    command: [a, \"{goal}\"]\n",
		"default: b\nprofiles:\n  b:\n    command: [b, -p]\n    prompt: [-s, \"{prompt}\"]\n    model: [-m, \"{model}\"]\n    resume: [-r, \"{session}\"]\n    mcp: [-c, \"{mcp}\"]\n    gate: true\n    toolset: [-t, \"{tools}\"]\n    tools: [Bash]\n    wrap: [--capture, full]\n    env: {A: b}\n    dir: /tmp\n",
		"profiles: {a: {command: [a], tools: [x]}}", "profiles: {a: }", "profiles: {}", "profiles: [a]", "default: x", "", "a: &a [*a]", "profiles: {a: {command: [a], dir: x}}",
		"profiles:\n a:\n    command: !0\nx\n    b: 0\nc: 0", // a panic of the parser's
		"profiles: {a: {command: [\"\"]}}", "profiles: {a: {command: [a], prompt: [x]}}", "profiles: {a: {command: [a], other: 1}}", "\xff\x00", "? {", "<<: *x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := parseProfiles("FILE", []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "--profile FILE: ") {
				t.Fatalf("%v", err)
			}
			return
		}
		if set.Default != "" && set.Profiles[set.Default] == nil {
			t.Fatalf("the default is %q of %v", set.Default, set.names())
		}
		o := execution.Order{Goal: "G", Prompt: "P", Model: "M", Resume: "S", Calls: &execution.Calls{Tools: []string{"T"}}}
		for _, name := range set.names() {
			p := set.Profiles[name]
			args, stdin := p.args(o, "C")
			if want := len(p.Command) + len(p.Prompt) + len(p.Model) + len(p.Resume) + len(p.Toolset); len(args) != want {
				t.Fatalf("%s: %q has %d words, want %d", name, args, len(args), want)
			}
			inWords := slices.ContainsFunc(slices.Concat(p.Command, p.Prompt, p.Model, p.Resume, p.Toolset), func(w string) bool { return strings.Contains(w, "{goal}") })
			if stdin == inWords {
				t.Fatalf("%s: on standard input %v, in the words %v", name, stdin, inWords)
			}
			p.can()
		}
	})
}
