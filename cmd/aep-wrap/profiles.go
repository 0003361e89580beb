package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"aep-wrap/execution"
)

// profile says how an agent of an embedder's is run. A word of a command that
// holds {goal}, {prompt}, {model}, {session}, {mcp} or {tools} has it put in.
type profile struct {
	Command []string          `yaml:"command"`
	Wrap    []string          `yaml:"wrap"` // aep-wrap's own flags for it
	Prompt  []string          `yaml:"prompt"`
	Model   []string          `yaml:"model"`
	Resume  []string          `yaml:"resume"`
	MCP     []string          `yaml:"mcp"`
	Toolset []string          `yaml:"toolset"` // beside the gate, which holds where this does not
	Tools   []string          `yaml:"tools"`
	Gate    bool              `yaml:"gate"`
	Env     map[string]string `yaml:"env"`
	Dir     string            `yaml:"dir"`
}

// profileSet is a file of profiles.
type profileSet struct {
	Default  string              `yaml:"default"`
	Profiles map[string]*profile `yaml:"profiles"`
}

// builtIn are the profiles of who names no file.
func builtIn() *profileSet {
	self, err := os.Executable()
	if err != nil {
		self = "aep-wrap"
	}
	return &profileSet{Default: "claude", Profiles: map[string]*profile{
		"claude": {
			Command: []string{"claude", "-p"}, Prompt: []string{"--append-system-prompt", "{prompt}"}, Model: []string{"--model", "{model}"},
			Resume: []string{"--resume", "{session}"}, MCP: []string{"--mcp-config", "{mcp}"}, Toolset: []string{"--tools", "{tools}"}, Gate: true,
		},
		"demo": {Command: []string{self, demoAgent}, Wrap: []string{"--adapter", "demo"}},
	}}
}

// readProfiles reads a file of profiles; "" is the built-in ones.
func readProfiles(path string) (*profileSet, error) {
	if path == "" {
		return builtIn(), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	return parseProfiles(path, b)
}

// parseProfiles reads the text of a file of profiles.
func parseProfiles(path string, b []byte) (*profileSet, error) {
	var s profileSet
	err := guardYAML(b, func() error { return yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(&s) })
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("--profile %s: %s", path, yaml.FormatError(err, false, false))
	}
	if len(s.Profiles) == 0 {
		return nil, fmt.Errorf("--profile %s: it holds no profile", path)
	}
	for _, name := range s.names() {
		p := s.Profiles[name]
		switch {
		case p == nil || len(p.Command) == 0 || p.Command[0] == "":
			return nil, fmt.Errorf("--profile %s: profile %s has no command", path, name)
		case p.Dir != "" && !filepath.IsAbs(p.Dir):
			return nil, fmt.Errorf("--profile %s: profile %s: dir is an absolute path", path, name)
		case len(p.Tools)+len(p.Toolset) > 0 && !p.Gate:
			return nil, fmt.Errorf("--profile %s: profile %s has tools and no gate: nothing would hold them", path, name)
		}
		for word, list := range map[string][]string{"prompt": p.Prompt, "model": p.Model, "session": p.Resume, "mcp": p.MCP, "tools": p.Toolset} {
			if len(list) > 0 && !strings.Contains(strings.Join(list, " "), "{"+word+"}") {
				return nil, fmt.Errorf("--profile %s: profile %s: {%s} is not in %q", path, name, word, list)
			}
		}
	}
	if s.Default == "" && len(s.Profiles) == 1 {
		s.Default = s.names()[0]
	}
	if _, ok := s.Profiles[s.Default]; !ok && s.Default != "" {
		return nil, fmt.Errorf("--profile %s: there is no profile %s, which default names", path, s.Default)
	}
	return &s, nil
}

func (s *profileSet) names() []string { return slices.Sorted(maps.Keys(s.Profiles)) }

func (s *profileSet) any(is func(*profile) bool) bool {
	return slices.ContainsFunc(s.names(), func(n string) bool { return is(s.Profiles[n]) })
}

// can is what a profile's command can honour.
func (p *profile) can() execution.Profile {
	return execution.Profile{
		Tools: p.Tools, Prompt: len(p.Prompt) > 0, MCP: len(p.MCP) > 0, Model: len(p.Model) > 0, Resume: len(p.Resume) > 0, Gate: p.Gate,
	}
}

// args is the command for an order; stdin says that the goal goes there.
func (p *profile) args(o execution.Order, mcp string) (args []string, stdin bool) {
	var tools []string
	if o.Calls != nil {
		tools = o.Calls.Tools
	}
	values := strings.NewReplacer("{tools}", strings.Join(tools, ","), "{goal}", o.Goal, "{prompt}", o.Prompt, "{model}", o.Model, "{session}", o.Resume, "{mcp}", mcp)
	stdin = true
	add := func(words []string) {
		for _, w := range words {
			stdin = stdin && !strings.Contains(w, "{goal}")
			args = append(args, values.Replace(w))
		}
	}
	// The goal may be the last word: what is optional stands before it.
	head, tail := p.Command, []string(nil)
	if i := slices.IndexFunc(p.Command, func(w string) bool { return strings.Contains(w, "{goal}") }); i >= 0 {
		head, tail = p.Command[:i], p.Command[i:]
	}
	add(head)
	for _, optional := range []struct {
		words []string
		given bool
	}{{p.Prompt, o.Prompt != ""}, {p.Model, o.Model != ""}, {p.Resume, o.Resume != ""}, {p.MCP, len(o.MCP) > 0}, {p.Toolset, len(tools) > 0}} {
		if optional.given {
			add(optional.words)
		}
	}
	add(tail)
	return args, stdin
}
