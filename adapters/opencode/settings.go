package opencode

import (
	"path"
	"strconv"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// address is where "serve" and "web" listen that are not told so: the settings
// say it, the last of them counts. The screen's server does not ask them.
func (w *wiring) address() (host string, port string) {
	base, _ := w.l.Getenv("XDG_CONFIG_HOME")
	if base == "" {
		base = path.Join(w.l.Home, ".config")
	}
	name := w.v.Command
	files := []string{path.Join(base, name, "config.json"), path.Join(base, name, name+".json"), path.Join(base, name, name+".jsonc"), w.env("CONFIG"),
		path.Join(w.l.Dir, name+".json"), path.Join(w.l.Dir, name+".jsonc")}
	say := func(raw []byte) {
		o, _ := adapters.Settings(raw)
		server, _ := o["server"].(map[string]any)
		if s, _ := server["hostname"].(string); s != "" {
			host = s
		}
		if n, err := strconv.ParseUint(string(event.AppendValue(nil, server["port"])), 10, 16); err == nil && n > 0 {
			port = strconv.FormatUint(n, 10)
		}
	}
	for _, file := range files {
		if file == "" || w.l.ReadFile == nil {
			continue
		}
		if raw, err := w.l.ReadFile(file); err == nil {
			say(raw)
		}
	}
	say([]byte(w.env("CONFIG_CONTENT")))
	return host, port
}
