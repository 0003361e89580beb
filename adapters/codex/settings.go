package codex

import (
	"path"
	"slices"
	"strings"

	"aep-wrap/adapters"
)

// system is the folder of the settings that an administrator gives.
const system = "/etc/codex"

// off says what switches hooks off; "" is nothing. The strongest that speaks of
// it counts, requirements above all.
func off(l adapters.Launch, w adapters.Line) (why string) {
	says := func(from, name, value string) {
		switch value {
		case "true":
			why = ""
		case "false":
			why = from + " disables hooks (features." + name + ")"
		}
	}
	read := func(file string) string {
		if l.ReadFile == nil {
			return ""
		}
		raw, _ := l.ReadFile(file)
		return string(raw)
	}
	users := read(path.Join(home(l), "config.toml"))
	layer := func(from, raw string) {
		name, value := feature(raw)
		says(from, name, value)
	}
	at := func(file string) { layer(file, read(file)) }

	at(path.Join(system, "config.toml"))
	layer("your config.toml", users)
	list := folders(l, w, read)
	for _, dir := range list {
		if trusted(users, dir) || trusted(users, list[0]) {
			at(path.Join(dir, ".codex", "config.toml"))
		}
	}
	if p := w.Value("-p", "--profile"); p != "" {
		at(profile(l, p))
	}
	for _, kv := range slices.Concat(w.Flags["-c"], w.Flags["--config"]) {
		layer("-c", kv)
	}
	for _, name := range names {
		if slices.Contains(w.Flags["--enable"], name) {
			says("--enable", name, "true")
		}
	}
	for _, name := range names {
		if slices.Contains(w.Flags["--disable"], name) {
			says("--disable "+name, name, "false")
		}
	}
	at(path.Join(system, "managed_config.toml"))

	policy := path.Join(system, "requirements.toml")
	raw := read(policy)
	if setting(raw, "", "allow_managed_hooks_only") == "true" {
		return policy + " allows managed hooks only (allow_managed_hooks_only)"
	}
	for _, table := range []string{"features", "feature_requirements"} {
		if name, value := switched(raw, table); value == "false" {
			why = policy + " forbids hooks (" + table + "." + name + ")"
		}
	}
	return why
}

func profile(l adapters.Launch, name string) string { return path.Join(home(l), name+".config.toml") }

// folders are those whose settings count: that of the launch, and those above
// it within its repository, the outermost first.
func folders(l adapters.Launch, w adapters.Line, read func(string) string) (out []string) {
	dir := l.Dir
	if d := w.Value("-C", "--cd"); path.IsAbs(d) {
		dir = d
	} else {
		dir = path.Join(dir, d)
	}
	if !path.IsAbs(dir) {
		return nil
	}
	var above []string
	for d := dir; ; d = path.Dir(d) {
		above = append(above, d)
		if read(path.Join(d, ".git", "HEAD")) != "" || read(path.Join(d, ".git")) != "" {
			break
		}
		if d == "/" {
			above = above[:1]
			break
		}
	}
	for _, d := range slices.Backward(above) {
		if path.Join(d, ".codex") != home(l) {
			out = append(out, d)
		}
	}
	return out
}

// trusted: a folder counts that the user trusts by its own name; that one above
// it is trusted says nothing, unless it is the repository.
func trusted(users, dir string) bool {
	return setting(users, `projects."`+dir+`"`, "trust_level") == `"trusted"`
}

// names are those of the feature: the second is its old one.
var names = []string{"hooks", "codex_hooks"}

func feature(raw string) (name, value string) { return switched(raw, "features") }

// switched reads whether a table switches hooks on or off.
func switched(raw, table string) (name, value string) {
	inline := setting(raw, "", table)
	for _, name = range names {
		value = setting(raw, table, name)
		if value == "" && strings.HasPrefix(inline, "{") {
			value = setting(strings.ReplaceAll(strings.Trim(inline, "{}"), ",", "\n"), "", name)
		}
		if value != "" {
			return name, value
		}
	}
	return "", ""
}

// setting reads one plain value of a TOML file: that of a key in a table, as it
// is written. It knows no more of TOML than that.
func setting(raw, table, key string) (value string) {
	in := ""
	for line := range strings.Lines(raw) {
		line, _, _ := strings.Cut(strings.TrimSpace(line), "#")
		if t, ok := strings.CutPrefix(strings.TrimSpace(line), "["); ok {
			in = strings.Trim(t, "[] \t")
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		k = strings.TrimSpace(k)
		if in != "" {
			k = in + "." + k
		}
		if ok && k == strings.TrimPrefix(table+"."+key, ".") {
			value = strings.TrimSpace(v)
		}
	}
	return value
}
